"""A profile of language models from records that others made: answers with log-probabilities, and times of engines.

A folder has for each model `MODEL.jsonl` with its answers, and `MODEL.engine.json`, an engine's
times, `MODEL.steps.csv`, times of its steps, with `MODEL.steps.json`, or `MODEL.bench*.json`, results
of vLLM's benchmark at several concurrencies, with `MODEL.facts.json` if there is one.
`MODEL.tp2.engine.json` and `MODEL.tp2.steps.csv` are those on two devices. `sharing.json` may declare
how engines on the same devices slow each other.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gearshift.errors import InvalidInput, require
from gearshift.measuring.engines.kept import Answered
from gearshift.measuring.engines.records import records_of
from gearshift.measuring.recorded.step_times import engine_from_steps
from gearshift.measuring.recorded.vllm_bench import engine_from_results
from gearshift.profiles.engines.certainty import recorded_features, recorded_sums
from gearshift.profiles.engines.engine_profile import EngineProfile, Sharing
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, LanguageProfile
from gearshift.profiles.engines.ranking import rankings, with_ranks
from gearshift.support.decoding import decode_json, numbered_lines
from gearshift.support.files import read_bytes

SHARING = "sharing.json"
ANSWERS, ENGINE, STEPS, FACTS = ".jsonl", ".engine.json", ".steps.csv", ".steps.json"
BENCH_FACTS = ".facts.json"
CERTAINTIES = ("mean_logprob", "least_logprob", "first_logprob", "margin", "sum_logprob", "judge")
SCORES = ("score", "quality", "acc_norm", "acc", "exact_match")
OF_LIKELIEST = "acc"
ROW_REMEDY = (
    "give id, score, logprobs and prompt_tokens, or a row of lm-evaluation-harness's sample log; of a log of other "
    "models `gearshift records` makes records"
)
MOST_TOKENS = 1 << 24
BYTES_PER_TOKEN = 4
"""By which the tokens of a prompt are guessed where they are not recorded."""


class _Row(msgspec.Struct, frozen=True):
    """`seconds` are the log-probabilities of the likeliest other token."""

    id: str
    score: float
    logprobs: list[float]
    seconds: list[float | None]
    prompt_tokens: int
    output_tokens: int


def language_profile_from_records(
    folder: Path, *, operator: str, certainty: str = "mean_logprob", seed: int = 0
) -> LanguageProfile:
    """Models by rising quality, over the prompts that all of them have; raises `InvalidInput`."""
    require(
        certainty in CERTAINTIES,
        f"certainty is {certainty!r}",
        remedy=f"use one of {', '.join(CERTAINTIES)}",
    )
    found = {path.name.removesuffix(ANSWERS): _rows(path) for path in sorted(folder.glob(f"*{ANSWERS}"))}
    require(
        bool(found), f"holds no answers (*{ANSWERS})", where=str(folder), remedy="put one file for each model there"
    )
    shared = sorted(set.intersection(*(set(rows) for rows in found.values())))
    require(
        len(shared) >= 2,
        f"{len(shared)} prompts have answers of all models, needs two",
        where=str(folder),
        remedy="give the rows of all models the same ids",
    )
    models = sorted(found, key=lambda model: float(np.mean([found[model][one].score for one in shared])))
    rows = [[_answered(found[model][one]) for one in shared] for model in models]
    quality = np.array([[found[model][one].score for one in shared] for model in models])
    records, judges = records_of(certainty, models, rows, quality, judged=True, seed=seed)
    left_out = max(len(one) for one in found.values()) - len(shared)
    engines = [one for model in models for one in _engines(folder, model)]
    told = [text for _, _, texts in engines for text in texts]
    if left_out:
        told.append(f"{left_out} prompts were left out, as not every model has an answer")
    made = LanguageProfile(
        operator=operator,
        engines=tuple(engine for engine, _, _ in engines),
        answers=records,
        certainty=certainty,  # type: ignore[arg-type]
        judges=judges,
        sharing=_declared(folder / SHARING),
        overhead_s=float(np.mean([overhead_s for _, overhead_s, _ in engines])),
        warnings=tuple(told),
    )
    return with_ranks(made, rankings(made, seed=seed))


def _declared(path: Path) -> tuple[Sharing, ...]:
    if not path.exists():
        return ()
    return decode_json(read_bytes(path), tuple[Sharing, ...], where=str(path), remedy="mend the file")


Imported = tuple[EngineProfile, float, list[str]]
"""The engine, the seconds that a lone request takes beside it, and what is to be known about both."""


def _engines(folder: Path, model: str) -> list[Imported]:
    """The engines of a model, by rising `tensor_parallel`."""
    found = [_engine(path, model, degree) for degree, path in _files(folder, model, ENGINE)]
    facts = folder / f"{model}{FACTS}"
    for degree, path in _files(folder, model, STEPS):
        found.append(engine_from_steps(model, path, facts, tensor_parallel=degree or 1))
    results = sorted(folder.glob(f"{model}.bench*.json"))
    bench_facts = folder / f"{model}{BENCH_FACTS}"
    require(
        not found or not bench_facts.exists(),
        "goes with results of vLLM's benchmark, and the model's times are from another file",
        where=str(bench_facts),
        remedy=f"put its fields into {model}{ENGINE} or {model}{FACTS}, and take it away",
    )
    if results and not found:
        found.append(engine_from_results(model, results, bench_facts))
    require(
        bool(found),
        f"has no times of model {model!r}",
        where=str(folder),
        remedy=f"add {model}{ENGINE}, {model}{STEPS} with {model}{FACTS}, or results of vLLM's benchmark as "
        f"{model}.bench-1.json, {model}.bench-4.json ...",
    )
    return sorted(found, key=lambda one: one[0].tensor_parallel)


def _files(folder: Path, model: str, suffix: str) -> list[tuple[int, Path]]:
    """Files `MODEL.tpNUMBER` with the suffix, each with its number, or 0 for one without."""
    name = re.compile(rf"{re.escape(model)}(?:\.tp([1-9]\d*))?{re.escape(suffix)}")
    matched = [(name.fullmatch(path.name), path) for path in sorted(folder.iterdir())]
    return [(int(match[1] or 0), path) for match, path in matched if match]


def _engine(path: Path, model: str, degree: int) -> Imported:
    engine = decode_json(read_bytes(path), EngineProfile, where=str(path), remedy="mend the file")
    require(engine.model == model, f"is of model {engine.model!r}", where=str(path), remedy="mend its name")
    require(
        degree in (0, engine.tensor_parallel),
        f"has tensor_parallel {engine.tensor_parallel}",
        where=str(path),
        remedy="mend it, or the file's name",
    )
    return engine, 0.0, []


def _rows(path: Path) -> dict[str, _Row]:
    rows: dict[str, _Row] = {}
    for number, line in numbered_lines(read_bytes(path)):
        where = f"{path}, line {number}"
        try:
            content = _decoded(line)
            require(isinstance(content, dict), "is no object")
            row = _of_harness(content) if "doc_id" in content and "resps" in content else _plain(content)
        except InvalidInput as error:
            raise InvalidInput(error.what, where=where, remedy=error.remedy or ROW_REMEDY) from error
        except KeyError as error:
            raise InvalidInput(f"the row has no field {error}", where=where, remedy=ROW_REMEDY) from error
        except (ValueError, TypeError, IndexError, OverflowError, RecursionError) as error:
            raise InvalidInput(f"the row cannot be used ({error})", where=where, remedy=ROW_REMEDY) from error
        require(
            row.id not in rows, f"the id {row.id[:200]!r} comes twice", where=where, remedy="keep one of the two rows"
        )
        rows[row.id] = row
    return rows


def _decoded(line: bytes) -> Any:
    """A row of JSON; with `NaN` and `Infinity`, as Python writes them."""
    try:
        return msgspec.json.decode(line)
    except msgspec.MsgspecError:
        return json.loads(line)


def _plain(row: Mapping[str, Any]) -> _Row:
    logprobs, seconds = _logprobs(row)
    return _Row(
        _id(row["id"]),
        _score(row),
        logprobs,
        seconds,
        _prompt_tokens(row),
        _tokens(len(logprobs) if row.get("output_tokens") is None else row["output_tokens"], "output_tokens", least=0),
    )


def _logprobs(row: Mapping[str, Any]) -> tuple[list[float], list[float | None]]:
    """Those of the tokens, and of the likeliest other ones: as lists, or as OpenAI's chats and texts have them."""
    given, top = row["logprobs"], row.get("top_logprobs")
    if isinstance(given, Mapping):
        top = given.get("top_logprobs")
        given = given["token_logprobs"] if given.get("content") is None else given["content"]
    if all(isinstance(one, Mapping) for one in given):
        top = [one.get("top_logprobs") for one in given]
    logprobs = [_number(one) for one in given]
    tops = [None] * len(logprobs) if top is None else list(top)
    require(len(tops) == len(logprobs), "logprobs and top_logprobs differ in length")
    seconds = [_second(one, logprob) for one, logprob in zip(tops, logprobs, strict=True)]
    require(bool(logprobs), "logprobs is empty")
    require(not any(map(math.isnan, logprobs)), "a log-probability is NaN")
    require(math.inf not in logprobs, "a log-probability is Infinity")
    return logprobs, seconds


def _number(one: Any) -> float:
    return float(one["logprob"] if isinstance(one, Mapping) else one)


def _id(given: Any) -> str:
    require(isinstance(given, (str, int)), f"the id is {str(given)[:200]}", remedy="give a text or a number")
    return str(given)


def _of_harness(row: Mapping[str, Any]) -> _Row:
    """A row of lm-evaluation-harness (`--log_samples`) of a task whose choices have log-likelihoods.

    The likeliest choice stands for an answer of one token. Its score is `acc` where there is one:
    `acc_norm` may be of another choice, as it weighs their lengths.
    """
    choices = [one[0] if isinstance(one[0], list) else one for one in row["resps"]]
    require(
        len(choices) >= 2 and all(isinstance(one, list) and len(one) == 2 for one in choices),
        "the row has no log-likelihoods of choices: lm-evaluation-harness keeps none of generated answers",
        remedy="use a multiple-choice task, or profile the endpoint with these prompts",
    )
    values = np.array([float(one[0]) for one in choices])
    normal = values - np.logaddexp.reduce(values) if np.isfinite(values.max()) else values * math.nan
    require(not np.isnan(normal).any(), "the row has no likely choice")
    best, second = sorted(normal.tolist())[-1], sorted(normal.tolist())[-2]
    prompt_tokens = _tokens_of_text(_asked_of_harness(row.get("arguments")))
    return _Row(_id_of_harness(row), _score(row, (OF_LIKELIEST, *SCORES)), [best], [second], prompt_tokens, 1)


def _id_of_harness(row: Mapping[str, Any]) -> str:
    """With the document's hash, where newer logs have it: numbers begin anew in each of several tasks."""
    hashed = row.get("doc_hash")
    return _id(row["doc_id"]) + (f" {hashed}" if isinstance(hashed, str) else "")


def _asked_of_harness(arguments: Any) -> str:
    """The longest context that was scored: each choice has it, in a list of pairs, or by name in newer logs."""
    calls = arguments.values() if isinstance(arguments, Mapping) else arguments or ()
    require(not isinstance(calls, str), "its arguments are a text, where the log has a list of them")
    pairs = [tuple(call.values()) if isinstance(call, Mapping) else call for call in calls]
    return max((str(pair[0]) for pair in pairs if pair), key=len, default="")


def _score(row: Mapping[str, Any], known: Sequence[str] = SCORES) -> float:
    names = [str(name) for name in row.get("metrics", ()) if name in row]
    name = next((one for one in (*known, *names) if one in row), None)
    require(name is not None, f"the row has no score: none of {', '.join(SCORES)}")
    score = float(row[str(name)])
    require(0 <= score <= 1, f"{name} is {score:g}", remedy="give quality in [0, 1]")
    return score


def _second(top: Any, logprob: float) -> float | None:
    """The likeliest other token, as in serving; the token itself is among `top` only where it is likely enough."""
    values = [_number(one) for one in (top.values() if isinstance(top, Mapping) else top or ())]
    itself = next((one for one in values if math.isclose(one, logprob, rel_tol=1e-6, abs_tol=1e-6)), None)
    if itself is not None:
        values.remove(itself)
    return max(values, default=None)


def _prompt_tokens(row: Mapping[str, Any]) -> int:
    if row.get("prompt_tokens") is not None:
        return _tokens(row["prompt_tokens"], "prompt_tokens")
    require(row.get("prompt") is not None, "the row has neither prompt_tokens nor a prompt")
    return _tokens_of_text(str(row["prompt"]))


def _tokens_of_text(text: str) -> int:
    return max(1, math.ceil(len(text.encode()) / BYTES_PER_TOKEN))


def _tokens(given: Any, name: str, *, least: int = 1) -> int:
    count = int(given)
    require(least <= count <= MOST_TOKENS, f"{name} is {given}", remedy=f"give a number from {least} to {MOST_TOKENS}")
    return count


def _answered(row: _Row) -> Answered:
    return Answered(
        prompt=row.id,
        prompt_tokens=row.prompt_tokens,
        output_tokens=max(1, row.output_tokens),
        features=tuple(recorded_features(DECIDE_AT_TOKENS, row.logprobs, row.seconds, row.prompt_tokens)),
        sums=tuple(recorded_sums(DECIDE_AT_TOKENS, row.logprobs)),
    )
