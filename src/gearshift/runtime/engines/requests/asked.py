"""A client's request to language models, and the one that an endpoint gets for it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from gearshift.language_workload import number_of_id
from gearshift.request import NO_DEADLINE_NS
from gearshift.runtime.engines.requests.engine_request import NO_MOST_TOKENS, StageVisit
from gearshift.runtime.service.room import Client

CHAT, TEXT = "/chat/completions", "/completions"
REQUEST_BYTES, FIELD_BYTES = 6 << 10, 256
"""Memory of a request, and of each of its fields, beside the bytes of its body."""
_TRUE = msgspec.Raw(b"true")
_STREAM_OPTIONS = msgspec.Raw(b'{"include_usage":true}')


@dataclass(slots=True, kw_only=True, eq=False)
class Asked:
    """`fields` are those of the body, as they came; `choices` counts the answers that are wanted.

    `top_logprobs` is None where no log-probabilities are wanted. `most_tokens` bounds the answer.
    `prompt_bytes` is about the size of the prompt's text; `media` counts the pictures, sounds and
    files in it. `held_bytes` is the memory that the request takes until it is answered.
    """

    path: str
    fields: dict[str, msgspec.Raw]
    prompt_bytes: int
    held_bytes: int
    media: int = 0
    most_tokens: int = NO_MOST_TOKENS
    choices: int = 1
    top_logprobs: int | None = None
    whole: bool = False
    streamed: bool = True
    """Whether the client sees the answer as it comes, or once it is whole."""
    include_usage: bool = False
    """Whether a stream ends with the usage."""
    id: str = ""
    deadline_ns: int = NO_DEADLINE_NS
    """The client's, on the service's clock."""
    client: Client = field(default_factory=Client, repr=False)
    visited: Callable[[StageVisit], None] | None = None
    """Called for each stage when it has ended."""
    echoes: bool = field(init=False)
    """Whether the answer may repeat its prompt: its first tokens then tell nothing of how sure a model is."""

    def __post_init__(self) -> None:
        self.echoes = bytes(self.fields.get("echo", b"null")) not in (b"false", b"null")

    @property
    def is_chat(self) -> bool:
        return self.path == CHAT

    def let_go(self) -> None:
        """Keep the body no longer than it is counted: a stream and its reader, which know each other, live on."""
        self.fields = {}

    @property
    def by_id(self) -> float:
        return number_of_id(self.id)

    def body(self, model: str, *, least_top_logprobs: int | None) -> bytes:
        """The body for an endpoint that knows the model as `model`, streamed, with usage.

        Log-probabilities are asked for where the client wants them, or `least_top_logprobs` is given.
        """
        fields = self.fields | {
            "model": msgspec.Raw(msgspec.json.encode(model)),
            "stream": _TRUE,
            "stream_options": _STREAM_OPTIONS,
        }
        if least_top_logprobs is not None:
            top = max(least_top_logprobs, self.top_logprobs or 0)
            if self.is_chat:
                fields["logprobs"] = _TRUE
                if top:
                    fields["top_logprobs"] = _number(top)
            else:
                fields["logprobs"] = _number(max(1, top))
        return msgspec.json.encode(fields)


def held_bytes_of(body_bytes: int, fields: int) -> int:
    """The memory of a request with a body of this size: the body as it came, and again for the engine."""
    return REQUEST_BYTES + FIELD_BYTES * fields + 2 * body_bytes


def _number(value: int) -> msgspec.Raw:
    return msgspec.Raw(str(value).encode())
