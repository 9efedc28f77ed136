"""The router's side of the messages with one worker, over any transport."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from gearshift.errors import ModelFailed, WorkerDied
from gearshift.runtime.wire.conversation import Conversation
from gearshift.runtime.wire.messages import (
    Adopt,
    Adopted,
    Done,
    Load,
    Loaded,
    LoadFailed,
    Message,
    Ping,
    Pong,
    Run,
    SetThreads,
    ThreadsSet,
)
from gearshift.runtime.wire.transport import FrameProtocol
from gearshift.v2.packing import Buffer

SENT = "it sent what no worker may: {}"

OnDone = Callable[[Done, memoryview], None]
OnEnd = Callable[[str], None]
OnOther = Callable[[Message, memoryview], None]


class WorkerLink:
    """Exchanges messages with a worker, from `attach` until `close`.

    `on_done` gets each finished batch, and rows that leave one early. With `probe_s` the worker is
    probed (`Health`) from `watch` on, and `stuck(why)` is called once when it is stuck.
    `not_loaded` has the failures of replicas. `on_other` gets those of a process that attends to
    caches.
    """

    def __init__(
        self,
        *,
        on_done: OnDone,
        stuck: Callable[[str], None],
        probe_s: float | None,
        on_other: OnOther | None = None,
    ) -> None:
        self._on_done, self._stuck, self._probe_s, self._on_other = on_done, stuck, probe_s, on_other
        self._conversation = Conversation(attends=on_other is not None)
        self._protocol: FrameProtocol | None = None
        self._health: Health | None = None
        self.not_loaded: list[LoadFailed] = []
        self._loaded: list[Loaded] = []
        self._loading: asyncio.Future[list[Loaded]] | None = None
        self._to_load = 0
        self._keeps_others = False
        self._threads: deque[asyncio.Future[ThreadsSet]] = deque()
        self._adoptions: deque[asyncio.Future[Adopted]] = deque()

    def attach(self, protocol: FrameProtocol) -> None:
        self._protocol = protocol

    async def load(self, load: Load, *, longest_s: float) -> list[Loaded]:
        """Raises `ModelFailed`, also after `longest_s`; failed replicas are in `not_loaded`."""
        self._loading, self._to_load = asyncio.get_running_loop().create_future(), len(load.replicas)
        self._keeps_others = load.keep_others
        self.send(load)
        try:
            async with asyncio.timeout(longest_s):
                return await self._loading
        except TimeoutError:
            models = ", ".join(repr(replica.model) for replica in load.replicas)
            raise ModelFailed(f"loading {models} took longer than {longest_s:g} s") from None

    def fail_loading(self, error: Exception) -> bool:
        if self._loading is None or self._loading.done():
            return False
        self._loading.set_exception(error)
        return True

    def watch(self) -> None:
        if self._probe_s is not None:
            loop = asyncio.get_running_loop()
            self._health = Health(loop, probe_s=self._probe_s, ask=lambda: self.send(Ping()), stuck=self._stuck)
            self._health.start()

    def run(self, message: Run, buffers: Sequence[Buffer], *, longest_s: float | None = None) -> None:
        """Send a batch, which may take `longest_s`; it is lost silently if the worker is gone."""
        self.send(message, buffers)
        if self._health is not None:
            self._health.began(longest_s)

    def set_threads(self, threads: int) -> "asyncio.Future[ThreadsSet]":
        """Set the worker's number of threads; the future raises `WorkerDied` if it is gone."""
        answer: asyncio.Future[ThreadsSet] = asyncio.get_running_loop().create_future()
        self._threads.append(answer)
        self.send(SetThreads(threads=threads))
        return answer

    def adopt(self, message: Adopt, weights: bytes) -> "asyncio.Future[Adopted]":
        answer: asyncio.Future[Adopted] = asyncio.get_running_loop().create_future()
        self._adoptions.append(answer)
        self.send(message, [weights])
        return answer

    def send(self, message: Message, buffers: Sequence[Buffer] = ()) -> None:
        """Send a frame; it is lost silently if the worker is gone."""
        if self._protocol is not None:
            self._protocol.send(message, buffers)
            self._conversation.said(message)

    @property
    def loaded_count(self) -> int:
        """How many of the replicas to load are loaded so far."""
        return len(self._loaded)

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._protocol is None else self._protocol.unsent_bytes

    def close(self) -> None:
        if self._protocol is not None:
            self._protocol.close()
        if self._health is not None:
            self._health.stop()
        waiting: list[asyncio.Future[Any]] = [*self._threads, *self._adoptions]
        for asked in waiting:
            if not asked.done():
                asked.set_exception(WorkerDied("it is gone"))
        self._threads.clear()
        self._adoptions.clear()

    def received(self, message: Message, body: memoryview) -> None:
        """Handle a frame of the worker; raises `FrameError` for one that it may not send."""
        self._conversation.heard(message, len(body))
        match message:
            case Done():
                if self._health is not None and not message.more:
                    self._health.ended()
                self._on_done(message, body)
            case Pong():
                if self._health is not None:
                    self._health.answered()
            case ThreadsSet():
                asked = self._threads.popleft()
                if not asked.done():
                    asked.set_result(message)
            case Adopted():
                adoption = self._adoptions.popleft()
                if not adoption.done():
                    adoption.set_result(message)
            case Loaded():
                self._loaded.append(message)
                self._end_loading()
            case LoadFailed():
                self.not_loaded.append(message)
                self._end_loading()
            case _:
                if self._on_other is not None:
                    self._on_other(message, body)

    def _end_loading(self) -> None:
        whole = len(self._loaded) + len(self.not_loaded) == self._to_load
        if self.not_loaded and (not self._keeps_others or (whole and not self._loaded)):
            self.fail_loading(ModelFailed(why_not_loaded(self.not_loaded[0])))
        elif whole and self._loading is not None and not self._loading.done():
            self._loading.set_result(self._loaded)


def why_not_loaded(failed: LoadFailed) -> str:
    return f"model {failed.model!r} cannot be loaded: {failed.reason}"


class Health:
    """Checks a worker every `probe_s`, and calls `stuck(why)` once when it is stuck.

    An idle worker is probed (`ask`) and must have `answered` by the next check. A busy one must be
    done within the time given to `began`; that is noticed at the next check. A check that is late,
    because this process was held up itself, decides nothing, as an answer may be unread.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, probe_s: float, ask: Callable[[], None], stuck: Callable[[str], None]
    ) -> None:
        self._loop, self._probe_s, self._ask, self._stuck = loop, probe_s, ask, stuck
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._asked = False
        self._longest_s: float | None = None
        self._ends_s: float | None = None

    def start(self) -> None:
        self._arm()

    def began(self, longest_s: float | None) -> None:
        self._longest_s = longest_s
        self._ends_s = float("inf") if longest_s is None else self._loop.time() + longest_s

    def ended(self) -> None:
        self._ends_s = None

    def answered(self) -> None:
        self._asked = False

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        self._due_s = self._loop.time() + self._probe_s
        self._timer = self._loop.call_at(self._due_s, self._look)

    def _look(self) -> None:
        now_s = self._loop.time()
        late = now_s - self._due_s > self._probe_s / 2
        if self._ends_s is not None:
            if now_s >= self._ends_s and not late:
                self._stuck(f"it had held a batch for longer than {self._longest_s:.3g} s")
                return
        elif not self._asked:
            self._asked = True
            self._ask()
        elif not late:
            self._stuck(f"it had not answered for {self._probe_s:.3g} s while it had nothing to do")
            return
        self._arm()
