"""Language models of an operator: the times of their engines, and their recorded answers."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.model import require_operator_name
from gearshift.profiles.engines.certainty import TextCertainty, TokenCertainty
from gearshift.profiles.engines.engine_profile import EngineProfile, Sharing
from gearshift.profiles.engines.judge import FittedJudge
from gearshift.profiles.profile import PART_A, Parted

DECIDE_AT_TOKENS = (1, 4, 16, None)
"""The generated tokens at which certainty is recorded; None at the end."""
BIN_EDGES = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
"""The largest prompt of each bin by which the length of an answer is expected; the last holds all above."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnswerRecords(Parted):
    """Each model's answer to each of n recorded prompts; arrays (models, n) unless noted.

    `certainty` is (models, n, 4): over the tokens up to each of `DECIDE_AT_TOKENS`, or over all of a
    shorter answer. `quality` is in [0, 1]. `prompt_tokens` differ by tokenizer. `part` (n,) is
    `PART_A`, on which thresholds and plans are chosen, or `PART_B`. `judged` is False where quality
    is not known and is 1 for the last model's answers alone.
    """

    models: tuple[str, ...]
    quality: NDArray[np.float64]
    certainty: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    part: NDArray[np.int8]
    judged: bool = True

    def __post_init__(self) -> None:
        shape = (len(self.models), len(self.part))
        require(shape[0] >= 1 and shape[1] >= 2, f"answers of {shape[0]} models to {shape[1]} prompts are too few")
        require(len(set(self.models)) == shape[0], f"answers name a model twice: {sorted(self.models)}")
        for name in ("quality", "prompt_tokens", "output_tokens"):
            require(getattr(self, name).shape == shape, f"answers: {name} is not of shape {shape}")
        certainties = (*shape, len(DECIDE_AT_TOKENS))
        require(self.certainty.shape == certainties, f"answers: certainty is not of shape {certainties}")
        require(bool(np.isfinite(self.certainty).all()), "answers: a certainty is not finite")
        require(bool(((self.quality >= 0) & (self.quality <= 1)).all()), "answers: a quality is not in [0, 1]")
        require(bool((self.prompt_tokens >= 1).all() and (self.output_tokens >= 1).all()), "answers: no token")
        self.require_both("answers: part A or part B has no prompts")

    def expected_output_tokens(self, model: str) -> NDArray[np.int64]:
        """The mean length (bins,) of part A's answers by `BIN_EDGES`; that of all in bins without prompts."""
        row, a = self.models.index(model), self.indices(PART_A)
        lengths = self.output_tokens[row, a]
        place = np.minimum(np.searchsorted(BIN_EDGES, self.prompt_tokens[row, a]), len(BIN_EDGES) - 1)
        count = np.bincount(place, minlength=len(BIN_EDGES))
        total = np.bincount(place, weights=lengths, minlength=len(BIN_EDGES))
        mean = np.where(count > 0, total / np.maximum(count, 1), lengths.mean())
        return np.maximum(1, np.rint(mean)).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageProfile:
    """Engines and answers of the models of one operator.

    `certainty` names how certainty is made of log-probabilities; for `judge`, `judges` has one for
    each model. `ranks` has the models whose
    certainty ranks their answers better than chance, and `ranks_at` each with the tokens of
    `DECIDE_AT_TOKENS` at which it does, all where it is empty; elsewhere requests are split by
    their id. `prompt_keys` has `Prompt.key` of each recorded prompt, or is empty where those are
    not known.
    `sharing` has engines that were timed beside each other on the same devices; others are taken to
    take turns in steps there.
    `overhead_s` is the time of a lone request beside its engine, from arrival to its first byte.
    `sha256` is a hash of the content; `project` as in `Profile`.
    """

    operator: str
    engines: tuple[EngineProfile, ...]
    answers: AnswerRecords
    certainty: TextCertainty = "mean_logprob"
    ranks: tuple[str, ...] = ()
    ranks_at: tuple[tuple[str, int | None], ...] = ()
    prompt_keys: tuple[str, ...] = ()
    judges: tuple[FittedJudge, ...] = ()
    sharing: tuple[Sharing, ...] = ()
    overhead_s: float = 0.0
    project: str | None = None
    sha256: str = ""
    notes: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_operator_name(self.operator)
        require(0 <= self.overhead_s < math.inf, "overhead_s is negative or not finite")
        places = [(one.model, one.device_kind, one.tensor_parallel) for one in self.engines]
        require(len(set(places)) == len(places), "the profile has an engine for one model and device kind twice")
        lacking = sorted(set(self.answers.models) ^ {one.model for one in self.engines})
        require(not lacking, f"models {lacking} have answers or an engine, and need both")
        known = len(self.prompt_keys) in (0, len(self.answers.part))
        require(known, f"there are {len(self.prompt_keys)} keys of {len(self.answers.part)} prompts")
        pairs = [(one.model, one.beside, one.device_kind, one.tensor_parallel) for one in self.sharing]
        require(len(set(pairs)) == len(pairs), "the profile says twice how two engines share devices")
        strangers = sorted({name for one in self.sharing for name in (one.model, one.beside)} - set(self.models))
        require(not strangers, f"the profile says how {strangers} share devices, and has {list(self.models)}")
        judged = {one.model for one in self.judges}
        complete = judged == set(self.models) if self.certainty == "judge" else not judged
        require(complete, f"certainty is {self.certainty!r}, and there are judges of models {sorted(judged)}")

    @property
    def models(self) -> tuple[str, ...]:
        return self.answers.models

    def ranks_by(self, model: str, decide_at: int | None) -> bool:
        """Whether the certainty of `model` at that token ranks its answers, so that a threshold may be put there."""
        return model in self.ranks and (not self.ranks_at or (model, decide_at) in self.ranks_at)

    def certainty_of(self, model: str, so_far: TokenCertainty, *, prompt_tokens: int, decide_at: int | None) -> float:
        """The certainty of an answer of `model` so far, as recorded for `decide_at` of `DECIDE_AT_TOKENS`."""
        if self.certainty == "judge":
            judge = next(one for one in self.judges if one.model == model)
            return judge.quality(DECIDE_AT_TOKENS.index(decide_at), so_far.features(prompt_tokens))
        return so_far.value(self.certainty)

    def factor_of(self, engine: EngineProfile, beside: EngineProfile) -> float | None:
        """`Sharing.factor` of both; None where they were not timed together."""
        place = engine.model, beside.model, engine.device_kind, engine.tensor_parallel
        found = (one for one in self.sharing if (one.model, one.beside, one.device_kind, one.tensor_parallel) == place)
        return next((one.factor for one in found), None)

    def engine(self, model: str, *, device_kind: str, tensor_parallel: int = 1) -> EngineProfile:
        """Raises `InvalidInput` where that combination was not measured."""
        for one in self.engines:
            if (one.model, one.device_kind, one.tensor_parallel) == (model, device_kind, tensor_parallel):
                return one
        raise InvalidInput(
            f"the profile has no engine of model {model!r} on device kind {device_kind!r} with tensor_parallel "
            f"{tensor_parallel}",
            remedy="profile it there, or plan for devices that were profiled",
        )
