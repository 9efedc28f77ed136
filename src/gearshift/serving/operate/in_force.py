"""One pipeline of the service in force, and the shadow that answers copies of its requests."""

from collections.abc import Callable
from typing import Any, Protocol

from gearshift.model import Arrays
from gearshift.request import Answer
from gearshift.runtime.service.answers import Done, Withdraw, answer_to
from gearshift.runtime.service.room import Reading
from gearshift.serving.operate.shadow import Shadow


class Inference(Protocol):
    """The part of `ServedPipeline` that requests need; a front end's process has its own version."""

    @property
    def accepting(self) -> bool: ...

    @property
    def most_waiting(self) -> int: ...

    def now_ns(self) -> int: ...

    def require_room(self, rows: int, held_bytes: int, *, bulk: bool = False) -> None:
        """Raise `NotReady`, `QueueFull` or `TooLarge` if `rows` would not be accepted now."""
        ...

    def reading(self, announced_bytes: int, *, bulk: bool = False) -> Reading: ...

    @property
    def submit(self) -> Callable[..., Withdraw]:
        """As `ServedPipeline.submit`; a front end's errors arrive in the answer."""
        ...


class InForce:
    """Where the requests of one pipeline go; another plan's service takes the place of `inference`."""

    def __init__(self, inference: Inference) -> None:
        self.inference = inference
        self.shadow: Shadow | None = None

    async def infer(self, inputs: Arrays, **asked: Any) -> Answer:
        """Infer as `ServedPipeline.infer`; a shadow is offered a copy of each answered request.

        Not of bulk work, nor of requests that run as it.
        """
        return await answer_to(self.submit, inputs, **asked)

    @property
    def submit(self) -> Callable[..., Withdraw]:
        return self.inference.submit if self.shadow is None else self._submit_to_both

    def _submit_to_both(self, inputs: Arrays, done: Done, **asked: Any) -> Withdraw:
        inference, shadow = self.inference, self.shadow
        rows = len(next(iter(inputs.values())))
        if asked.get("bulk") is not None or rows > inference.most_waiting:
            return inference.submit(inputs, done, **asked)
        began_ns = inference.now_ns()

        def compared(answer: Answer) -> None:
            if shadow is not None and self.shadow is shadow and answer.outcome != "refused":
                shadow.offer(inputs, answer, inference.now_ns() - began_ns, asked.get("payload_bytes", 0))
            done(answer)

        return inference.submit(inputs, compared, **asked)
