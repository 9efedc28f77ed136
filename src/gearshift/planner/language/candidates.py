"""Cascades of language models that a plan may use: their quality, and the tokens that they cost.

A stage decides at a recorded token by certainty, or by the request's id before it runs
(`decide_at_tokens` 0). Stages that decide by id come first, as those who pass them run nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.planner.space.pareto import front_indices
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS, LanguageProfile

THRESHOLDS = 40
"""Thresholds on certainty that are tried for a stage, at even shares of what it forwards."""
SHARES = tuple(i / 20 for i in range(1, 20))
"""Shares of requests that pass a stage which decides by id."""
MOST_EXTENDED = 12
"""Cascades of two models, along the front, to which a third is added."""
BY_ID = -1

Floats = NDArray[np.float64]


class Stage(NamedTuple):
    """A model, when it decides (an index of `DECIDE_AT_TOKENS`, or `BY_ID`), and below what it forwards."""

    model: int
    at: int = BY_ID
    threshold: float = 0.0


Stages = tuple[Stage, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """The answers (models, n) on which cascades are judged.

    `ranks` (models, 4) says at which of `DECIDE_AT_TOKENS` a stage may decide by certainty.
    """

    models: tuple[str, ...]
    quality: Floats
    certainty: Floats
    prompt_tokens: Floats
    output_tokens: Floats
    ranks: NDArray[np.bool_]

    def tokens_until(self, stage: Stage) -> Floats:
        """Tokens (n,) that a stage gives before it forwards."""
        at = DECIDE_AT_TOKENS[stage.at]
        output = self.output_tokens[stage.model]
        return output if at is None else np.asarray(np.minimum(at, output))


@dataclass(frozen=True, slots=True, eq=False)
class CandidateTable:
    """Candidates (c,), each with its quality, and what each model does for a request on average.

    `prompt_tokens` and `output_tokens` are (c, models), with those of answers that are discarded;
    `latest` (c,) is the place in `DECIDE_AT_TOKENS` of the latest decision, `BY_ID` without one.
    """

    models: tuple[str, ...]
    stages: tuple[Stages, ...]
    quality: Floats
    prompt_tokens: Floats
    output_tokens: Floats
    latest: NDArray[np.int64]

    def cascade(self, candidate: int) -> Cascade:
        return cascade_of(self.stages[candidate], self.models)

    def chosen(self, which: Sequence[int]) -> "CandidateTable":
        kept = list(which)
        return CandidateTable(
            self.models,
            tuple(self.stages[i] for i in kept),
            self.quality[kept],
            self.prompt_tokens[kept],
            self.output_tokens[kept],
            self.latest[kept],
        )


def cascade_of(stages: Stages, models: Sequence[str]) -> Cascade:
    at = tuple(0 if one.at == BY_ID else DECIDE_AT_TOKENS[one.at] for one in stages[:-1])
    return Cascade(
        models=tuple(models[one.model] for one in stages),
        thresholds=tuple(one.threshold for one in stages[:-1]),
        decide_at_tokens=at or UNSET,
    )


def answers_of(
    profile: LanguageProfile,
    records: NDArray[np.int32],
    *,
    prompt_tokens: float | None = None,
    output_tokens: float | None = None,
) -> Answers:
    """The recorded answers; the mean tokens of a trace stand in for theirs where given."""
    known = profile.answers
    prompts = known.prompt_tokens[:, records].astype(np.float64)
    outputs = known.output_tokens[:, records].astype(np.float64)
    return Answers(
        known.models,
        known.quality[:, records],
        known.certainty[:, records],
        prompts if prompt_tokens is None else np.full_like(prompts, prompt_tokens),
        outputs if output_tokens is None else np.full_like(outputs, output_tokens),
        np.array([[profile.ranks_by(model, at) for at in DECIDE_AT_TOKENS] for model in known.models]),
    )


def candidate_table(answers: Answers, work_s: Floats, *, single_models: bool = False) -> CandidateTable:
    """Single models, and cascades from cheap to expensive by `work_s` (models,) of a request alone.

    Cascades of three are those of two on the front, with a model before or after.
    """
    order = [int(model) for model in np.argsort(work_s, kind="stable")]
    stages: list[Stages] = [(Stage(model),) for model in order]
    if single_models:
        return table_of(stages, answers)
    pairs = [pair for i, first in enumerate(order) for last in order[i + 1 :] for pair in _pairs(first, last, answers)]
    table = table_of(stages + pairs, answers)
    front = front_indices(_work(table, work_s), table.quality)
    longer = [table.stages[i] for i in front if len(table.stages[i]) == 2]
    step = max(1, len(longer) // MOST_EXTENDED)
    triples = [three for two in longer[::step] for three in _extended(two, order, answers)]
    return table_of(stages + pairs + triples, answers)


def fronts(table: CandidateTable, work_s: Floats, *, most: int) -> list[int]:
    """Candidates of which no other has more quality for as little work (c,), by rising work.

    There is a front for each latest token of decision, as early decisions give first tokens sooner;
    at most `most` stay, spread evenly over quality.
    """
    kept: set[int] = set()
    for latest in sorted(set(table.latest.tolist())):
        among = np.flatnonzero(table.latest <= latest)
        kept |= {int(among[i]) for i in front_indices(work_s[among], table.quality[among])}
    ordered = sorted(kept, key=lambda i: (work_s[i], table.quality[i]))
    singles = [i for i in ordered if len(table.stages[i]) == 1]
    others = [i for i in ordered if len(table.stages[i]) > 1]
    room = max(0, most - len(singles))
    if len(others) > room:
        others = _spread(others, table.quality, room)
    return sorted({*singles, *others}, key=lambda i: (work_s[i], table.quality[i]))


def _spread(which: list[int], quality: Floats, count: int) -> list[int]:
    """`count` of them at even steps of quality."""
    if count == 0:
        return []
    ordered = sorted(which, key=lambda i: quality[i])
    wanted = np.linspace(quality[ordered[0]], quality[ordered[-1]], count)
    places = np.minimum(np.searchsorted(quality[ordered], wanted), len(ordered) - 1)
    return [ordered[int(place)] for place in np.unique(places)]


def _pairs(first: int, last: int, answers: Answers) -> Iterator[Stages]:
    for share in SHARES:
        yield Stage(first, BY_ID, share), Stage(last)
    for stage in _by_certainty(first, answers, THRESHOLDS):
        yield stage, Stage(last)


def _extended(two: Stages, order: Sequence[int], answers: Answers) -> Iterator[Stages]:
    first, last = order.index(two[0].model), order.index(two[1].model)
    for model in order[:first]:
        for share in SHARES[::2]:
            if two[0].at != BY_ID or two[0].threshold < share:
                yield Stage(model, BY_ID, share), *two
        if two[0].at != BY_ID:
            for stage in _by_certainty(model, answers, THRESHOLDS // 4):
                yield stage, *two
    for model in order[last + 1 :]:
        for stage in _by_certainty(two[1].model, answers, THRESHOLDS // 4):
            yield two[0], stage, Stage(model)


def _by_certainty(model: int, answers: Answers, count: int) -> Iterator[Stage]:
    """Stages that decide by the model's certainty, at the tokens where it ranks answers."""
    for at in np.flatnonzero(answers.ranks[model]).tolist():
        for threshold in _thresholds(answers.certainty[model, :, at], count):
            yield Stage(model, at, threshold)


def _thresholds(certainty: Floats, count: int) -> list[float]:
    """Values above the lowest, at even shares of the requests that are below them."""
    values = np.sort(certainty)
    places = np.linspace(0, len(values) - 1, count + 2)[1:].astype(int)
    return [float(value) for value in np.unique(values[places]) if value > values[0]]


def table_of(stages: Sequence[Stages], answers: Answers) -> CandidateTable:
    shape = len(stages), len(answers.models)
    quality, prompts, outputs = np.zeros(shape[0]), np.zeros(shape), np.zeros(shape)
    latest = np.full(shape[0], BY_ID, dtype=np.int64)
    for i, each in enumerate(stages):
        quality[i], prompts[i], outputs[i] = measured(each, answers)
        latest[i] = max((one.at for one in each[:-1]), default=BY_ID)
    return CandidateTable(answers.models, tuple(stages), quality, prompts, outputs, latest)


def measured(stages: Stages, answers: Answers) -> tuple[float, Floats, Floats]:
    """Mean quality, and mean tokens (models,) of prompts and of answers that each model works on."""
    n = answers.quality.shape[1]
    reach, quality = np.ones(n), np.zeros(n)
    prompts, outputs = np.zeros(len(answers.models)), np.zeros(len(answers.models))
    for stage, following in pairwise((*stages, None)):
        assert stage is not None
        m = stage.model
        if following is None:
            stays, ran, given = reach, reach, answers.output_tokens[m]
            onward = np.zeros(n)
        elif stage.at == BY_ID:
            onward = np.minimum(reach, stage.threshold)
            stays, ran, given = reach - onward, reach - onward, answers.output_tokens[m]
        else:
            forwards = answers.certainty[m, :, stage.at] < stage.threshold
            stays, onward, ran = reach * ~forwards, reach * forwards, reach
            given = np.where(forwards, answers.tokens_until(stage), answers.output_tokens[m])
        quality += stays * answers.quality[m]
        prompts[m] += float((ran * answers.prompt_tokens[m]).mean())
        outputs[m] += float((ran * given).mean())
        reach = onward
    return float(quality.mean()), prompts, outputs


def _work(table: CandidateTable, work_s: Floats) -> Floats:
    """About the work (c,) of candidates, in shares of what each model takes for a request alone."""
    alone = {stages[0].model: i for i, stages in enumerate(table.stages) if len(stages) == 1}
    full = np.array([table.output_tokens[alone[model], model] for model in range(len(table.models))])
    share: Floats = table.output_tokens / np.maximum(full, 1e-12)
    return np.asarray(share @ work_s)
