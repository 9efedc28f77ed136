"""The files of a project of language models around endpoints that run already, or commands that start engines."""

import json
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from gearshift.errors import require
from gearshift.models.language_config import EngineSettings
from gearshift.support.http import Failure, fetched

NAMES = {2: ("small", "large"), 3: ("small", "medium", "large")}
LONGEST_ANSWER_S = 5.0
LARGEST_ANSWER_BYTES = 1 << 20
NOT_SAID = "it did not say"
CONTEXT_TOKENS = 8192

HEAD = """# Language models behind OpenAI's API, from the smallest to the largest.
# Clients ask /v1/chat/completions for the model of this name.

operator = "chat"
prompts = {prompts}
{judge}
certainty = "mean_logprob"          # or least_logprob, first_logprob, margin, sum_logprob, judge
most_tokens = 256
"""

ENGINE = """
[models.{name}.engine]
{how}
model = {model}
context_tokens = {context}
largest_running = 16                # requests that it runs at a time; vLLM: --max-num-seqs, llama.cpp: -np
largest_batched_tokens = 2048       # tokens of one step; vLLM: --max-num-batched-tokens, llama.cpp: -ub
# kv_tokens = 100000                # vLLM's log: "GPU KV cache size"; without it, full contexts of all that run
# api_key_env = "MY_KEY"            # the environment variable with the key, if there is one
"""

JUDGED = 'judge = "judge.py:score"            # quality in [0, 1] of an answer to a prompt'
UNJUDGED = (
    '# judge = "judge.py:score"          # the prompts have no reference: quality is agreement with the last model'
)
NAMED_BY = ("--served-model-name", "--alias", "-a", "--model-path", "--model")
"""Options of engines by which a model is named at the endpoint, the most telling first."""

TAIL = """
[profile]
# most_calls = 2000                 # ask no more than that; `gearshift profile` says how many there will be
"""

EXAMPLES = (
    ("What is the capital of Norway? One word.", "Oslo"),
    ("What is 17 times 23? Only the number.", "391"),
    ("Which planet is the largest of the solar system? One word.", "Jupiter"),
    ("Write 'seven hundred and four' in digits.", "704"),
    ("Which chemical element has the symbol K? One word.", "potassium"),
    ("How many days has March? Only the number.", "31"),
)

JUDGE = '''"""Quality of an answer: 1 where it contains the reference, else 0. Put your own measure here."""


def score(prompt, answer, reference):
    return float(str(reference).lower() in answer.lower())
'''


class OwnPrompts(NamedTuple):
    """A file of prompts as the project names it, and whether they have references."""

    path: str
    referenced: bool


def endpoint_files(urls: Sequence[str], prompts: OwnPrompts | None) -> dict[str, bytes]:
    """Each file's content by its name; the first is the project file. Endpoints are asked for model and context.

    Raises `InvalidInput` for fewer than two URLs, and for one that is none.
    """
    require(len(urls) >= 2, f"{len(urls)} endpoint is given, and a cascade needs two", remedy="give URL,URL")
    text = _head(prompts)
    for name, url in zip(_names(len(urls)), urls, strict=True):
        EngineSettings(url=url, model=name)  # checks the URL
        model, context = served_model(url)
        text += ENGINE.format(
            name=name,
            how=f"url = {_quoted(url)}",
            model=f"{_quoted(model)}  # as it says" if model else f'"{name}"  # {NOT_SAID}: put its name here',
            context=f"{context}  # as it says" if context else f"{CONTEXT_TOKENS}  # {NOT_SAID}: put its own here",
        )
    return _files(text, prompts)


def command_files(commands: Sequence[str], prompts: OwnPrompts | None) -> dict[str, bytes]:
    """The same, for engines that Gearshift starts; raises `InvalidInput` for a command that it cannot start."""
    require(len(commands) >= 2, f"{len(commands)} command is given, and a cascade needs two", remedy="give one a model")
    text = _head(prompts)
    for name, command in zip(_names(len(commands)), commands, strict=True):
        EngineSettings(command=command, model=name)  # checks the command
        model = model_named(command)
        text += ENGINE.format(
            name=name,
            how=f'command = {_quoted(command)}\ndevice_kind = "cuda"                # or "cpu"',
            model=f"{_quoted(model)}  # as the command says"
            if model
            else f'"{name}"  # put its name at the endpoint here',
            context=f"{CONTEXT_TOKENS}  # put the engine's own here",
        )
    return _files(text, prompts)


def model_named(command: str) -> str:
    """The name that the command gives its model; empty where it does not tell."""
    words = [part for word in shlex.split(command) for part in word.split("=", 1)]
    for option in NAMED_BY:
        if option in words[:-1]:
            return words[words.index(option) + 1]
    after = words.index("serve") + 1 if "serve" in words else len(words)
    return words[after] if after < len(words) and not words[after].startswith("-") else ""


def _names(count: int) -> tuple[str, ...]:
    return NAMES.get(count) or tuple(f"model-{i + 1}" for i in range(count))


def _head(prompts: OwnPrompts | None) -> str:
    judged = prompts is None or prompts.referenced
    path = "prompts.jsonl" if prompts is None else prompts.path
    return HEAD.format(prompts=_quoted(path), judge=JUDGED if judged else UNJUDGED)


def _files(text: str, prompts: OwnPrompts | None) -> dict[str, bytes]:
    files = {"gearshift.toml": (text + TAIL).encode(), "judge.py": JUDGE.encode()}
    if prompts is None:
        rows = [
            {"id": number, "messages": [{"role": "user", "content": asked}], "reference": reference}
            for number, (asked, reference) in enumerate(EXAMPLES)
        ]
        files["prompts.jsonl"] = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    return files


def served_model(url: str) -> tuple[str, int | None]:
    """The name of the first model at an endpoint, and its context where it tells; empty where it does not answer."""
    try:
        answer = fetched(f"{url.rstrip('/')}/models", within_s=LONGEST_ANSWER_S, largest_bytes=LARGEST_ANSWER_BYTES)
        if answer.status != 200:
            return "", None
        first: Any = msgspec.json.decode(answer.body)["data"][0]
        name = first["id"]
        context = first.get("max_model_len") or first.get("meta", {}).get("n_ctx")  # vLLM's and llama.cpp's
    except (*Failure, ValueError, LookupError, TypeError, AttributeError):  # it may send anything
        return "", None
    usable = isinstance(name, str) and name.isprintable()
    return (name if usable else ""), (context if isinstance(context, int) and context > 0 else None)


def _quoted(text: str) -> str:
    """As a string of TOML, which has no surrogates."""
    return json.dumps(text, ensure_ascii=False)
