"""`gearshift.toml` of language models: engines by URL or command, prompts, a judge, and the certainty."""

import shlex
from pathlib import Path
from string import Formatter
from typing import Any, Literal, get_args

import msgspec

from gearshift.errors import InvalidInput, require, require_each
from gearshift.model import require_name, require_operator_name
from gearshift.models.config import require_reference
from gearshift.models.remote_settings import api_key_of, parts_of_url, require_plain_url
from gearshift.support.decoding import UNREADABLE, why_unreadable
from gearshift.support.files import read_text

TextCertainty = Literal["mean_logprob", "least_logprob", "first_logprob", "margin", "sum_logprob", "judge"]
PLACEHOLDERS = frozenset({"port", "tp", "memory_share", "kv_tokens", "api_key"})
MEMORY_SHARE = 0.9
"""The share of a device's memory for the engines on it, where nothing else is said; vLLM refuses all of it."""
PICTURE_TOKENS = 1000
"""The default tokens of one picture; vision models use about 250 to 1,500."""
OURS = frozenset(
    {"model", "messages", "prompt", "max_tokens", "max_completion_tokens", "temperature", "logprobs", "top_logprobs"}
    | {"stream", "stream_options", "n"}
)
"""Fields of a request that Gearshift sets while it profiles, and a project's `body` must not."""


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one model runs: at `url`, or started by `command`, and how much it holds.

    `url` is the part before `/chat/completions`, such as `http://gpu-1:8000/v1`; several give one
    replica each. `command` is started once for each replica, in the folder of the project file; it
    contains `{port}`, and may contain `{tp}`, `{memory_share}`, `{kv_tokens}` and `{api_key}`. It
    must serve within `longest_start_s`. `model` is the name at the endpoint. `api_key_env` names
    the environment variable with the key; without it a command gets one that Gearshift makes.
    `context_tokens` bounds prompt and answer of one request together; `kv_tokens` is what the
    engine's memory holds of all requests: `largest_running` full contexts where it is not given.
    With `weights_bytes`, over all its devices, and `kv_bytes_per_token` of every model (2 x layers
    x heads for keys x their width x bytes of a number), plans may put several on one device;
    without, each has its own. A `command` may have several `tensor_parallel`, such as [1, 2]: each
    is timed, the first is asked for answers, and plans choose. An engine of kind `cpu` is profiled
    on `cores` processors for each device, as it is served on those of the plan's hardware, by
    default one. A picture, sound or file in a prompt counts as `picture_tokens` until the engine has
    counted some. `body` has further fields for the requests that profiling sends. A server sends
    all replicas of the model together at most `requests_per_minute` and `tokens_per_minute`, of
    prompts and answers, where these are given; predictions do not know of them.
    """

    url: str | tuple[str, ...] = ()
    command: str = ""
    model: str
    api_key_env: str | None = None
    longest_start_s: float = 300.0
    longest_s: float = 300.0
    context_tokens: int = 8192
    largest_running: int = 256
    kv_tokens: int | None = None
    largest_batched_tokens: int = 2048
    block_tokens: int = 16
    tensor_parallel: int | tuple[int, ...] = 1
    device_kind: str = ""
    weights_bytes: int = 0
    kv_bytes_per_token: int = 0
    cores: int = 1
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    picture_tokens: int = PICTURE_TOKENS
    body: dict[str, Any] = {}

    def __post_init__(self) -> None:
        require(
            bool(self.urls) != bool(self.command),
            "url and command are both given" if self.command else "there is neither a url nor a command",
            remedy="give one of them",
        )
        require(bool(self.model), "model is empty", remedy="give the model's name at the endpoint")
        for url in self.urls:
            _check_url(url)
        require(len(set(self.urls)) == len(self.urls), "a url is given twice", remedy="give each replica's once")
        if self.command:
            self._check_command()
        counts = (
            *("context_tokens", "largest_running", "largest_batched_tokens"),
            "block_tokens",
            "cores",
            "picture_tokens",
        )
        seconds, limits = ("longest_start_s", "longest_s"), ("requests_per_minute", "tokens_per_minute")
        require_each(self, seconds, lambda value: 0 < value <= 86_400, "more than 0, up to 86400")
        require_each(self, counts, lambda value: 1 <= value <= 1 << 30, "1 or more")
        require_each(self, limits, lambda limit: limit is None or 1 <= limit <= 1 << 40, "1 or more")
        self._check_degrees()
        sizes = "weights_bytes", "kv_bytes_per_token"
        require_each(self, sizes, lambda value: 0 <= value <= 1 << 50, "0 (not known) or more")
        least = self.block_tokens
        enough = self.kv_tokens is None or self.kv_tokens >= least
        require(enough, f"kv_tokens is {self.kv_tokens}, needs at least one block of {least}")
        ours = sorted(OURS & set(self.body))
        require(not ours, f"body holds {ours[0]!r}, which is set otherwise" if ours else "", remedy="leave it out")

    @property
    def urls(self) -> tuple[str, ...]:
        return (self.url,) if isinstance(self.url, str) else self.url

    @property
    def degrees(self) -> tuple[int, ...]:
        """Each `tensor_parallel` that may be served, rising."""
        return (self.tensor_parallel,) if isinstance(self.tensor_parallel, int) else self.tensor_parallel

    def on(self, tensor_parallel: int) -> "EngineSettings":
        """These settings with one `tensor_parallel`."""
        return msgspec.structs.replace(self, tensor_parallel=tensor_parallel)

    @property
    def kind(self) -> str:
        """The kind of its devices: as given, or `remote` for endpoints and `cuda` for commands."""
        return self.device_kind or ("remote" if self.urls else "cuda")

    @property
    def held_tokens(self) -> int:
        return self.largest_running * self.context_tokens if self.kv_tokens is None else self.kv_tokens

    def argv(
        self,
        *,
        port: int,
        memory_share: float = MEMORY_SHARE,
        kv_tokens: int | None = None,
        tensor_parallel: int | None = None,
        api_key: str = "",
    ) -> list[str]:
        """The command's words for a replica that listens on `port`, by default with what the model is profiled with."""
        words = {
            "port": str(port),
            "tp": str(tensor_parallel or self.degrees[0]),
            "memory_share": f"{memory_share:.4g}",
            "kv_tokens": str(kv_tokens or self.held_tokens),
            "api_key": api_key,
        }
        return [word.format_map(words) for word in shlex.split(self.command)]

    def key(self, where: str) -> str | None:
        """The key or None; raises `InvalidInput` where its variable is unset or unusable."""
        return api_key_of(self.api_key_env, where)

    def _check_degrees(self) -> None:
        given = list(self.degrees)
        rising = all(a < b for a, b in zip((0, *given), given, strict=False))
        require(
            bool(given) and rising and given[-1] <= 1 << 30,
            f"tensor_parallel is {given[0] if len(given) == 1 else given}, needs 1 or more, or rising numbers from 1",
        )
        several = len(given) > 1
        require(
            not several or bool(self.command),
            f"tensor_parallel is {given}, and endpoints by url run with one",
            remedy="give one number, or a command that Gearshift can start with each",
        )
        require(
            not several or "{tp}" in self.command,
            f"tensor_parallel is {given}, and command has no {{tp}}",
            remedy="write {tp} where the engine takes it",
        )

    def _check_command(self) -> None:
        remedy = "write {port}, {tp}, {memory_share}, {kv_tokens} or {api_key}, and {{ or }} for a brace"
        try:
            words = shlex.split(self.command)
            fields = [one for word in words for one in Formatter().parse(word) if one[1] is not None]
        except ValueError as error:
            raise InvalidInput(f"command cannot be split into words ({error})", remedy=remedy) from error
        others = sorted({str(name) for _, name, spec, how in fields if name not in PLACEHOLDERS or spec or how})
        require(not others, f"command contains {{{others[0]}}}" if others else "", remedy=remedy)
        require(
            any(name == "port" for _, name, _, _ in fields),
            "command has no {port}",
            remedy="write {port} where the engine takes its port: each replica gets one of its own",
        )


class LanguageModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    engine: EngineSettings


class EngineMeasuring(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The measuring of engines, and the bound on what is asked of them.

    `prompt_tokens` are the lengths of prompts at which prefill is timed; those that fit no context
    are left out. `concurrency` are the numbers of requests whose tokens are timed together, at
    each of `contexts`. With `sharing`, engines that plans may put on the same devices are timed
    beside each other, too. Nothing is asked beyond `most_calls` calls, where that is given.
    """

    prompt_tokens: tuple[int, ...] = (16, 64, 256, 1024, 2048)
    concurrency: tuple[int, ...] = (1, 2, 4, 8, 16)
    contexts: tuple[int, ...] = (64, 1024)
    decoded_tokens: int = 32
    repeats: int = 5
    at_once: int = 8
    """Answers to prompts are asked for this many at a time."""
    sharing: bool = True
    most_calls: int | None = None

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "concurrency", "contexts"):
            values = getattr(self, name)
            rising = all(a < b for a, b in zip((0, *values), values, strict=False))
            require(len(values) > 0 and rising, f"{name} is {list(values)}, needs rising numbers from 1")
        require(len(self.prompt_tokens) >= 2, "prompt_tokens has one length, and prefill needs two")
        require(self.concurrency[0] == 1, f"concurrency begins at {self.concurrency[0]}, needs 1")
        require(self.concurrency[-1] <= 1024, f"concurrency goes up to {self.concurrency[-1]}, needs at most 1024")
        require(4 <= self.decoded_tokens <= 4096, f"decoded_tokens is {self.decoded_tokens}, needs 4 to 4096")
        require(1 <= self.repeats <= 1000, f"repeats is {self.repeats}, needs 1 to 1000")
        require(1 <= self.at_once <= 1024, f"at_once is {self.at_once}, needs 1 to 1024")
        enough = self.most_calls is None or self.most_calls >= 1
        require(enough, f"most_calls is {self.most_calls}, needs at least 1")


class LanguageProject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `gearshift.toml` for language models of one operator.

    `models` stand from the smallest to the largest. `prompts` is a JSONL file, relative to the
    project file. `judge` (`file.py:function`) takes prompt, answer and reference, and returns a
    quality in [0, 1]; without it, and without references, the largest model's answer is what others
    are compared with. `certainty` says how one is made of log-probabilities, with the last model's
    left unused. An answer has at most `most_tokens` tokens, unless its prompt says otherwise.
    """

    operator: str
    prompts: str
    models: dict[str, LanguageModel]
    judge: str = ""
    certainty: TextCertainty = "mean_logprob"
    most_tokens: int = 256
    temperature: float = 0.0
    profile: EngineMeasuring = EngineMeasuring()

    def __post_init__(self) -> None:
        require_operator_name(self.operator)
        require(bool(self.prompts), "prompts is empty", remedy="name a JSONL file of prompts")
        require(len(self.models) >= 1, "there are no models", remedy="add a [models.NAME.engine] section")
        for name in self.models:
            require_name(name, "a model")
        if self.judge:
            require_reference(self.judge, "judge")
        require(1 <= self.most_tokens <= 1 << 20, f"most_tokens is {self.most_tokens}, needs 1 to {1 << 20}")
        require(0 <= self.temperature <= 2, f"temperature is {self.temperature}, needs 0 to 2")
        places: dict[tuple[str, str], str] = {}
        for name, model in self.models.items():
            for url in model.engine.urls:
                place = url, model.engine.model
                require(
                    place not in places,
                    f"models {places.get(place)!r} and {name!r} are the same at {url}",
                    remedy="give each its own endpoint, or its own name there",
                )
                places[place] = name


def is_language_project(path: Path) -> bool:
    """Whether `path`, a project file, is meant to be one of language models; False where it cannot be read."""
    try:
        content = msgspec.toml.decode(read_text(path))
    except UNREADABLE:
        return False
    models = content.get("models")
    engines = isinstance(models, dict) and any(isinstance(one, dict) and "engine" in one for one in models.values())
    return "prompts" in content or engines


def read_language_project(path: Path) -> LanguageProject:
    """Read the project file `path`; raises `InvalidInput` naming file, field and remedy."""
    text = read_text(path, remedy="make one with `gearshift init --llm`")
    try:
        return msgspec.toml.decode(text, type=LanguageProject)
    except UNREADABLE as error:
        remedy = f"use one of {', '.join(get_args(TextCertainty))}" if "$.certainty" in str(error) else "mend the file"
        raise InvalidInput(why_unreadable(error), where=str(path), remedy=remedy) from error


def _check_url(url: str) -> None:
    remedy = "give it as https://HOST:PORT/v1, or with http"
    parts = parts_of_url(url, remedy=remedy)
    require_plain_url(url, remedy=remedy)
    require(
        not (parts.query or parts.fragment or parts.username or parts.password),
        "url holds more than host, port and path",
        remedy="name the key's environment variable by api_key_env",
    )
