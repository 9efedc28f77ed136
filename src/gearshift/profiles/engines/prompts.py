"""Prompts for language models, from a JSONL file."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from gearshift.errors import require
from gearshift.support.decoding import decode_json, numbered_lines
from gearshift.support.files import read_bytes

REMEDY = 'write one JSON object a line, such as {"id": "1", "messages": [{"role": "user", "content": "hello"}]}'


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """`messages` of a chat, or one text as `prompt`; `body` has further fields of the request, such as `tools`."""

    id: str | int
    messages: tuple[dict[str, Any], ...] = ()
    prompt: str = ""
    reference: Any = None
    max_tokens: int | None = None
    body: dict[str, Any] = {}

    def __post_init__(self) -> None:
        both = bool(self.messages) and bool(self.prompt)
        require(not both, f"prompt {self.id!r} has both messages and prompt", remedy="give one of them")
        require(
            bool(self.messages) or bool(self.prompt),
            f"prompt {self.id!r} has neither messages nor prompt",
            remedy="give one of them",
        )
        for message in self.messages:
            require("role" in message, f"a message of prompt {self.id!r} has no role")
        usable = self.max_tokens is None or 1 <= self.max_tokens <= 1 << 20
        require(usable, f"max_tokens of prompt {self.id!r} is {self.max_tokens}, needs 1 to {1 << 20}")

    @property
    def asked(self) -> dict[str, Any]:
        """The fields of a request that hold the prompt."""
        return {**self.body, **({"messages": self.messages} if self.messages else {"prompt": self.prompt})}

    @property
    def size_bytes(self) -> int:
        return len(msgspec.json.encode(self.messages)) if self.messages else len(self.prompt.encode())

    @property
    def key(self) -> str:
        """A hash of all that an answer depends on."""
        data = msgspec.json.encode([self.asked, self.max_tokens], order="deterministic")
        return hashlib.sha256(data).hexdigest()[:32]


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """Read at least two prompts with different ids; raises `InvalidInput` naming file, line and remedy."""
    prompts = []
    for number, line in numbered_lines(read_bytes(path, remedy=REMEDY)):
        prompts.append(decode_json(line, Prompt, where=f"{path}, line {number}", remedy=REMEDY))
    require(len(prompts) >= 2, f"holds {len(prompts)} prompts, needs at least two", where=str(path), remedy=REMEDY)
    seen: set[str] = set()
    for prompt in prompts:
        require(
            str(prompt.id) not in seen,
            f"two prompts have the id {prompt.id!r}",
            where=str(path),
            remedy="give each prompt an id of its own",
        )
        seen.add(str(prompt.id))
    return tuple(prompts)
