"""What a router of language models drives: the engines, and the clients' answers."""

from typing import Protocol

from gearshift.runtime.engines.requests.engine_request import EngineRequest


class EngineDriver(Protocol):
    """The engines, and those who wait for answers."""

    def send(self, replica: int, request: EngineRequest) -> None: ...

    def cancel(self, replica: int, request: EngineRequest) -> None:
        """Take the request from an engine that has not ended it."""
        ...

    def answered(self, request: EngineRequest) -> None:
        """A stage has decided to answer, so what was held may be shown."""
        ...

    def finished(self, request: EngineRequest) -> None:
        """The answer has ended."""
        ...

    def unanswered(self, request: EngineRequest) -> None:
        """No replica is left that could answer, or the one that did has failed."""
        ...
