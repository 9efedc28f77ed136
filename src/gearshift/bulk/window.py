"""How many requests may be open at a time, as the server has room."""

import asyncio
from collections import deque


class Window:
    """Requests at a time: one more for each round that finds room at the server, half as many without."""

    def __init__(self, most: int) -> None:
        self._most, self._allowed, self._inside = most, float(most), 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def allowed(self) -> int:
        return int(self._allowed)

    async def enter(self) -> None:
        while self._inside >= self.allowed:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._wake()
                raise
        self._inside += 1

    def leave(self, fits: bool) -> None:
        self._inside -= 1
        grown = self._allowed + 1 / self._allowed
        self._allowed = min(float(self._most), grown) if fits else max(1.0, self._allowed / 2)
        self._wake()

    def _wake(self) -> None:
        free = self.allowed - self._inside
        while self._waiting and free > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1
