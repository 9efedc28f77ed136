"""A model behind an HTTP endpoint, as `gearshift.toml` declares it."""

import os
from string import Formatter
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from gearshift.errors import require

Protocol = Literal["v2", "openai"]
LARGEST_MOST_REQUESTS = 256
LONGEST_PROMPT = 100_000


class RemoteSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model that another server runs: where it is, how it is asked, and within which bounds.

    `url` is what comes before `/v2/...`, or before `/chat/completions`; `model` its name there.  `longest_s` is the
    time for a batch; `most_requests` how many requests of one batch are open at a time (V2 needs one).
    `api_key_env` names the environment variable that holds the key, and `ca_file`, relative to the project file, the
    certificates to trust in place of the system's.

    V2: `outputs` are the outputs to ask for, and what each is called here: `certainty`, `scores`, `label` or any
    other name; without it all, by their own names.

    OpenAI: `prompt` is the message of one sample, with `{name}` for each input; `most_tokens` bounds the answer, and
    `classes`, where there are any, are the only answers that count.
    """

    url: str
    protocol: Protocol
    model: str
    longest_s: float = 5.0
    most_requests: int = 8
    api_key_env: str | None = None
    ca_file: str | None = None
    largest_answer_bytes: int = 64 << 20
    outputs: dict[str, str] = {}
    prompt: str = ""
    classes: tuple[str, ...] = ()
    most_tokens: int = 16

    def __post_init__(self) -> None:
        self._check_url()
        require(bool(self.model), "model is empty", remedy="give the model's name at the endpoint")
        require(0 < self.longest_s <= 3600, f"longest_s is {self.longest_s}, needs more than 0, up to 3600")
        require(
            1 <= self.most_requests <= LARGEST_MOST_REQUESTS,
            f"most_requests is {self.most_requests}, needs 1 to {LARGEST_MOST_REQUESTS}",
        )
        require(self.largest_answer_bytes >= 1, f"largest_answer_bytes is {self.largest_answer_bytes}, needs 1 or more")
        require(self.most_tokens >= 1, f"most_tokens is {self.most_tokens}, needs at least 1")
        if self.protocol == "v2":
            require(not self.prompt and not self.classes, "prompt and classes are of protocol openai alone")
            require(len(set(self.outputs.values())) == len(self.outputs), "two outputs have the same name here")
        else:
            require(not self.outputs, "outputs are of protocol v2 alone")
            self._check_prompt()

    def _check_url(self) -> None:
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        require(usable, f"url is {self.url!r}", remedy="give it as https://HOST:PORT/PATH, or with http")
        require(
            not (parts.query or parts.fragment or parts.username or parts.password),
            "url holds more than host, port and path",
            remedy="name the key's environment variable by api_key_env",
        )
        plain = self.url.isascii() and self.url.isprintable() and " " not in self.url
        require(plain, f"url is {self.url!r}", remedy="write it in plain ASCII")

    def _check_prompt(self) -> None:
        remedy = "write {name} for an input, and {{ or }} for a brace"
        require(0 < len(self.prompt) <= LONGEST_PROMPT, "prompt is empty or too long", remedy=remedy)
        try:
            fields = [(name, spec, how) for _, name, spec, how in Formatter().parse(self.prompt) if name is not None]
        except ValueError as error:
            fields = []
            require(False, f"prompt is no template ({error})", remedy=remedy)
        plain = all(name.isidentifier() and not spec and not how for name, spec, how in fields)
        require(plain and bool(fields), "prompt has no input, or more than the name of one in braces", remedy=remedy)

    def key(self, where: str) -> str | None:
        """The key, None where none is needed; raises `InvalidInput` where its variable is not set or unusable."""
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "")
        require(
            bool(key) and key.isascii() and key.isprintable(),
            f"the environment variable {self.api_key_env!r} holds no key",
            where=where,
            remedy="set it where `gearshift` is started",
        )
        return key
