"""`gearshift.toml`: which models a user brings, here or behind an HTTP endpoint, and how to measure them."""

import os
import re
from pathlib import Path
from string import Formatter
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from gearshift.errors import InvalidInput, require
from gearshift.hardware import is_cuda
from gearshift.models.certainty import BUILT_IN
from gearshift.support.files import read_text

PROJECT_FILE = "gearshift.toml"
ONNX_SUFFIX = ".onnx"
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
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        require(usable, f"url is {self.url!r}", remedy="give it as https://HOST:PORT/PATH, or with http")
        require(
            not (parts.fragment or parts.username or parts.password),
            "url holds more than host, port and path",
            remedy="let ?name=value alone follow the path, and name the key's environment variable by api_key_env",
        )
        plain = self.url.isascii() and self.url.isprintable() and " " not in self.url
        require(plain, f"url is {self.url!r}", remedy="write it in plain ASCII")

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


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model: its loader or ONNX file, relative to the project file, or its remote endpoint.

    `load` is `file.py:function` or `file.onnx`, and empty with `remote`; `softmax` turns the
    model's scores into probabilities before certainty is computed; `outputs`, where given, selects
    the model's outputs and gives each its name here: `certainty`, `scores`, `label` or any other;
    `memory_mib` is the memory it needs, if known; `environment` names the variables with secrets
    that it needs, such as `HF_TOKEN`, which workers do not get otherwise.
    """

    load: str = ""
    softmax: bool = False
    outputs: dict[str, str] = {}
    memory_mib: float | None = None
    remote: RemoteSettings | None = None
    environment: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.remote is not None:
            require(not self.load, "load and remote are both given", remedy="give one of them")
            require(not self.outputs, "outputs are given beside remote", remedy="give them within remote")
        elif not self.is_onnx_file:
            _check_reference(self.load, "load", "file.py:function or file.onnx")
        require(len(set(self.outputs.values())) == len(self.outputs), "two outputs have the same name here")
        require(self.memory_mib is None or self.memory_mib > 0, f"memory_mib is {self.memory_mib}, needs more than 0")

    @property
    def is_onnx_file(self) -> bool:
        return self.load.endswith(ONNX_SUFFIX)


class ProfileSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How models are measured."""

    batch_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    repeats: int = 20
    longest_s: float = 10.0
    """Approximate upper bound per model and batch size."""
    device_kind: str = "cpu"
    """`cpu`, `cuda`, or a name beginning with `cpu-` or `cuda-`, to tell devices apart."""
    together: bool = True
    """Time all models in one process, in turn, as in serving; false: one by one (less memory)."""

    def __post_init__(self) -> None:
        require(
            len(self.batch_sizes) >= 1 and min(self.batch_sizes) >= 1 and max(self.batch_sizes) <= 65536,
            f"batch_sizes is {list(self.batch_sizes)}, needs numbers from 1 to 65536",
        )
        require(3 <= self.repeats <= 10_000, f"repeats is {self.repeats}, needs 3 to 10000")
        require(0 < self.longest_s < 1e6, f"longest_s is {self.longest_s}, needs a positive number of seconds")
        require(
            is_cuda(self.device_kind) or self.device_kind == "cpu" or self.device_kind.startswith("cpu-"),
            f"device_kind is {self.device_kind!r}",
            remedy="use cpu or cuda, or a name that begins with cpu- or cuda-",
        )


class Project(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `gearshift.toml`.

    `samples` (`file.py:function`) returns `gearshift.Samples`; `certainty` names a built-in
    function or `file.py:function`; `operator` is the name under which the task is served.
    """

    operator: str
    samples: str
    models: dict[str, ModelSettings]
    certainty: str = "top_two_difference"
    profile: ProfileSettings = ProfileSettings()

    def __post_init__(self) -> None:
        require_operator_name(self.operator)
        _check_reference(self.samples, "samples")
        require(len(self.models) >= 1, "there are no models", remedy="add a [models.NAME] section")
        if ":" in self.certainty:
            _check_reference(self.certainty, "certainty")
        else:
            require(
                self.certainty in BUILT_IN,
                f"certainty is {self.certainty!r}",
                remedy=f"use one of {', '.join(BUILT_IN)}, or file.py:function",
            )


def require_operator_name(name: str) -> None:
    """Raise `InvalidInput` unless `name` can be part of a URL and of a metric."""
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    require(
        plain.isalnum() and name.isascii() and len(name) <= 64,
        f"operator is {name!r}",
        remedy="use up to 64 letters, digits, '-', '_' and '.'",
    )


def project_file(path: Path) -> Path:
    return path / PROJECT_FILE if path.is_dir() else path


def read_project(path: Path) -> Project:
    """Read the project in `path`; raises `InvalidInput` naming file, field and remedy."""
    text = read_text(path, remedy="make one with `gearshift init`")
    try:
        return msgspec.toml.decode(text, type=Project)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidInput(str(error), where=str(path), remedy="mend the file") from error


def _check_reference(reference: str, field: str, form: str = "file.py:function") -> None:
    file, colon, function = reference.partition(":")
    require(
        bool(colon) and file.endswith(".py") and function.isidentifier(),
        f"{field} is {reference!r}",
        remedy=f"write it as {form}",
    )
