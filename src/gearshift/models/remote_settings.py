"""Settings of a model that another server runs."""

import os
import re
from string import Formatter
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

from gearshift.errors import InvalidInput, require

Protocol = Literal["v2", "openai"]
TokensField = Literal["", "max_tokens", "max_completion_tokens"]
AUTHORIZATION = "Authorization"
LARGEST_MOST_REQUESTS = 256
LARGEST_MOST_ATTEMPTS = 100
LONGEST_PROMPT = 100_000
OURS = frozenset({"model", "messages", "max_tokens", "max_completion_tokens", "temperature", "logprobs", "stream", "n"})
"""Fields of a body that Gearshift sets and a project must not."""
OUR_HEADERS = frozenset(
    {"authorization", "connection", "content-length", "content-type", "host", "inference-header-content-length", "te",
     "transfer-encoding", "upgrade"}
)  # fmt: skip
OF_PATIENCE = ("most_attempts", "longest_asking_s", "most_attempts_served")
OF_ASKING = ("longest_s", "most_requests", *OF_PATIENCE)
OF_REACHING = ("api_key_env", "api_key_header", "ca_file")
"""Settings that a model's answers do not depend on, as those of asking."""
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)


class RemoteSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model that another server runs: where it is, how it is asked, and within which bounds.

    `url` is the part before `/v2/...`, or before `/chat/completions`, and may end in
    `?name=value`; `model` is its name there. `longest_s` is the time for a batch; `most_requests`
    is how many requests of one batch are open at a time (V2 needs one). `api_key_env` names the
    environment variable that holds the key, which is sent as `Authorization: Bearer`, or alone in
    another `api_key_header`; `headers` are sent, too. `ca_file`, relative to the project file,
    holds the certificates to trust in place of the system's.

    While profiling, a request that fails temporarily is sent up to `most_attempts` times, as long
    as the next attempt is at most `longest_asking_s` after the first; while serving
    `most_attempts_served` times, all within `longest_s`.

    V2: `outputs` are the outputs to ask for, and the name of each here: `certainty`, `scores`,
    `label` or any other name; by default all, under their own names.

    OpenAI: `prompt` is the message of one sample, with `{name}` for each input; `classes`, if
    given, are the only answers that count. `most_tokens` bounds the answer, in `tokens_field`: by
    default `max_tokens`, and `max_completion_tokens` where the endpoint requires that.
    `temperature` and `body` (other fields) are sent as they are, except for the fields in
    `leave_out`.
    """

    url: str
    protocol: Protocol
    model: str
    longest_s: float = 5.0
    most_requests: int = 8
    most_attempts: int = 6
    longest_asking_s: float = 120.0
    most_attempts_served: int = 1
    api_key_env: str | None = None
    api_key_header: str = AUTHORIZATION
    headers: dict[str, str] = {}
    ca_file: str | None = None
    largest_answer_bytes: int = 64 << 20
    outputs: dict[str, str] = {}
    prompt: str = ""
    classes: tuple[str, ...] = ()
    most_tokens: int = 16
    tokens_field: TokensField = ""
    temperature: float = 0.0
    body: dict[str, Any] = {}
    leave_out: tuple[Literal["temperature", "max_tokens"], ...] = ()

    def __post_init__(self) -> None:
        self._check_url()
        require(bool(self.model), "model is empty", remedy="give the model's name at the endpoint")
        attempts = f"1 to {LARGEST_MOST_ATTEMPTS}"
        for name, usable, needs in (
            ("longest_s", 0 < self.longest_s <= 3600, "more than 0, up to 3600"),
            ("most_requests", 1 <= self.most_requests <= LARGEST_MOST_REQUESTS, f"1 to {LARGEST_MOST_REQUESTS}"),
            ("largest_answer_bytes", self.largest_answer_bytes >= 1, "1 or more"),
            ("most_tokens", self.most_tokens >= 1, "at least 1"),
            ("most_attempts", 1 <= self.most_attempts <= LARGEST_MOST_ATTEMPTS, attempts),
            ("most_attempts_served", 1 <= self.most_attempts_served <= LARGEST_MOST_ATTEMPTS, attempts),
            ("longest_asking_s", 0 < self.longest_asking_s <= 86_400, "more than 0, up to 86400"),
            ("temperature", 0 <= self.temperature <= 100, "0 to 100"),
        ):
            require(usable, f"{name} is {getattr(self, name)}, needs {needs}")
        self._check_headers()
        if self.protocol == "v2":
            chat = self.prompt or self.classes or self.body or self.leave_out or self.tokens_field
            require(not chat, "body, leave_out, tokens_field, prompt and classes are of protocol openai alone")
            require(len(set(self.outputs.values())) == len(self.outputs), "two outputs have the same name here")
        else:
            require(not self.outputs, "outputs are of protocol v2 alone")
            require(
                all(one.strip() for one in self.classes), "a class is empty", remedy="name what the model is to answer"
            )
            ours = sorted(OURS & set(self.body))
            require(
                not ours,
                f"body holds {ours[0]!r}, which is set otherwise" if ours else "",
                remedy="use model, prompt, most_tokens, tokens_field, temperature or leave_out",
            )
            self._check_prompt()

    def _check_url(self) -> None:
        parts = parts_of_url(self.url, remedy="give it as https://HOST:PORT/PATH, or with http")
        require(
            not (parts.fragment or parts.username or parts.password),
            "url holds more than host, port and path",
            remedy="let ?name=value alone follow the path, and name the key's environment variable by api_key_env",
        )
        require_plain_url(self.url, remedy="write it in plain ASCII")

    def _check_headers(self) -> None:
        for name in (self.api_key_header, *self.headers):
            require(bool(_HEADER.fullmatch(name)), f"{name!r} is no name of a header")
        key_fits = self.api_key_header.lower() not in OUR_HEADERS - {AUTHORIZATION.lower()}
        require(key_fits, f"api_key_header is {self.api_key_header!r}, which is set otherwise")
        for name, value in self.headers.items():
            plain = value.isascii() and value.isprintable()
            require(plain, f"the header {name!r} holds more than one line of plain ASCII")
        fixed = [name for name in self.headers if name.lower() in OUR_HEADERS | {self.api_key_header.lower()}]
        require(
            not fixed,
            f"headers hold {fixed[0]!r}, which is set otherwise" if fixed else "",
            remedy="leave it out; the key comes from the variable that api_key_env names",
        )

    @property
    def shown_url(self) -> str:
        """The URL without its query, which may be secret."""
        return self.url.partition("?")[0]

    @property
    def inputs(self) -> frozenset[str]:
        return frozenset(name for _, name, _, _ in Formatter().parse(self.prompt) if name is not None)

    def _check_prompt(self) -> None:
        remedy = "write {name} for an input, and {{ or }} for a brace"
        require(0 < len(self.prompt) <= LONGEST_PROMPT, "prompt is empty or too long", remedy=remedy)
        try:
            fields = [(name, spec, how) for _, name, spec, how in Formatter().parse(self.prompt) if name is not None]
        except ValueError as error:
            raise InvalidInput(f"prompt is no template ({error})", remedy=remedy) from error
        plain = all(name.isidentifier() and not spec and not how for name, spec, how in fields)
        require(plain and bool(fields), "prompt has no input, or more than the name of one in braces", remedy=remedy)

    def key(self, where: str) -> str | None:
        """The key or None; raises `InvalidInput` where its variable is unset or unusable."""
        return api_key_of(self.api_key_env, where)


def parts_of_url(url: str, *, remedy: str) -> SplitResult:
    """The parts of a server's URL; raises `InvalidInput` for any other text."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    require(usable, f"url is {url!r}", remedy=remedy)
    return parts


def require_plain_url(url: str, *, remedy: str) -> None:
    require(url.isascii() and url.isprintable() and " " not in url, f"url is {url!r}", remedy=remedy)


def api_key_of(variable: str | None, where: str) -> str | None:
    """The key in an environment variable, or None without one; raises `InvalidInput` where it is unset or unusable."""
    if variable is None:
        return None
    key = os.environ.get(variable, "")
    require(
        bool(key) and key.isascii() and key.isprintable(),
        f"the environment variable {variable!r} holds no key",
        where=where,
        remedy="set it where `gearshift` is started",
    )
    return key
