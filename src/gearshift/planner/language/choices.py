"""A plan as the search sees it: gears of candidates on one placement; as tables to simulate, and as a plan."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from gearshift.gear import SHARE_UNIT, Gear, GearPlan, GearPrediction, LoadRange, PipelinePlan, ReplicaSettings, alone
from gearshift.pipeline import Node
from gearshift.placement import Placement
from gearshift.planner.language.candidates import BY_ID, CandidateTable
from gearshift.planner.language.layouts import EngineRates, balanced, bottleneck_s, engine_rates, placed_engine
from gearshift.planner.language.request import LanguageRequest
from gearshift.planner.space.beside import keeping
from gearshift.policies.engines.deciding import DECIDES_AT_END, DECIDES_BY_ID
from gearshift.profiles.engines.engine_profile import StepWork
from gearshift.profiles.engines.engine_tables import EngineTables, default_most_outstanding, engine_tables
from gearshift.profiles.engines.language_profile import DECIDE_AT_TOKENS

MOST_STAGES = 3
BOUNDS = (2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256)
"""With one, an engine would rest while its answer goes back and the next request comes, which is not simulated."""
ONE_TOKEN = StepWork(prompt_tokens=0, prompts=0, decoding=1, kv_tokens=0, attention_pairs=0)


class GearChoice(NamedTuple):
    """Candidate `candidate` from load `begins` on; `most` bounds what each replica of a model has, 0 by default."""

    candidate: int
    begins: float
    most: tuple[int, ...]


Choice = tuple[GearChoice, ...]
"""Gears by rising load; the first begins at 0."""


@dataclass(frozen=True, eq=False)
class PlanMaker:
    """Plans of `candidates` on one placement, whose replicas stand in the order of the profile's models."""

    request: LanguageRequest
    placement: Placement
    candidates: CandidateTable

    @cached_property
    def rates(self) -> EngineRates:
        kinds = {device.id: device.kind for device in self.request.hardware.devices}
        return engine_rates(self.request.profile, self.placement, kinds)

    @cached_property
    def bottleneck_s(self) -> NDArray[np.float64]:
        """Seconds (c,) of the busiest devices for one request of each candidate."""
        return bottleneck_s(self.rates, self.candidates)

    @cached_property
    def alone_s(self) -> NDArray[np.float64]:
        """About the seconds (c,) from arrival to end of a lone request of each candidate."""
        table, profile = self.candidates, self.request.profile
        token_s = np.full(len(table.models), np.inf)
        kinds = {device.id: device.kind for device in self.request.hardware.devices}
        for replica in self.placement.replicas:
            engine = placed_engine(profile, replica, kinds)
            model = profile.models.index(replica.model)
            token_s[model] = min(token_s[model], engine.step_s(ONE_TOKEN))
        used = np.where(table.output_tokens > 0, table.output_tokens, 0)
        return np.asarray((used * np.where(np.isfinite(token_s), token_s, 0)).sum(axis=1) + self.bottleneck_s)

    @cached_property
    def shares(self) -> NDArray[np.int64]:
        """The shares (c, replicas) of each candidate."""
        table = self.candidates
        rows = zip(table.prompt_tokens, table.output_tokens, strict=True)
        return np.array([balanced(self.rates, prompts, outputs) for prompts, outputs in rows])

    def free(self, candidate: int, begins: float = 0.0) -> GearChoice:
        """A gear that bounds what engines have no more than by default."""
        return GearChoice(candidate, begins, (0,) * len(self.candidates.models))

    def constant(self, candidate: int) -> Choice:
        return (self.free(candidate),)

    def tables(self, choice: Choice) -> EngineTables:
        chosen = [gear.candidate for gear in choice]
        most = np.array([gear.most for gear in choice], dtype=np.int64)[:, self.rates.model]
        counts, models, thresholds, at = self._stages
        return dataclasses.replace(
            self._base,
            most_stages=MOST_STAGES,
            stage_count=counts[chosen],
            stage_models=models[chosen].ravel(),
            thresholds=thresholds[chosen].ravel(),
            decide_at=at[chosen].ravel(),
            range_starts=np.array([gear.begins for gear in choice]),
            shares=self.shares[chosen].ravel(),
            most_outstanding=np.where(most > 0, most, self._default_most).ravel(),
        )

    def plan(self, choice: Choice, predicted: Sequence[GearPrediction | None] = ()) -> GearPlan:
        """The plan of a choice, signed by no planner and without predictions for the trace."""
        request, name = self.request, self.request.profile.operator
        ends = [*(gear.begins for gear in choice[1:]), None]
        gears = tuple(
            Gear(
                load_range=LoadRange(from_=gear.begins, to=end),
                cascades=alone(name, self.candidates.cascade(gear.candidate)),
                replicas=self._settings(gear),
                predicted=told,
            )
            for gear, end, told in zip(choice, ends, predicted or [None] * len(choice), strict=True)
        )
        pipeline = PipelinePlan(
            nodes={name: Node(operator=name)},
            output=name,
            objective=request.objective,
            gears=gears,
            load_unit=request.load_unit,
        )
        return GearPlan(
            planner="",
            seed=request.seed,
            hardware=request.hardware,
            placement=self.placement,
            pipelines={name: pipeline},
            profiles={name: request.profile_source},
            traces={name: request.trace_source},
        )

    def _settings(self, gear: GearChoice) -> tuple[ReplicaSettings, ...]:
        settings = []
        for place, replica in enumerate(self.placement.replicas):
            most = gear.most[self.rates.model[place]]
            settings.append(
                ReplicaSettings(
                    replica=replica.id,
                    load_share=float(self.shares[gear.candidate, place]) / SHARE_UNIT,
                    most_outstanding=most or UNSET,
                )
            )
        return tuple(settings)

    @cached_property
    def _base(self) -> EngineTables:
        return engine_tables(self.plan(self.constant(0)), self.request.profile)

    @cached_property
    def _default_most(self) -> NDArray[np.int64]:
        return np.array([default_most_outstanding(engine) for engine in self._base.engines])

    def bounds(self, model: int) -> tuple[int, ...]:
        """The bounds worth trying on what each replica of a model has, rising; the last, 0, is the default."""
        default = int(self._default_most[self.rates.model == model].min())
        return (*(bound for bound in BOUNDS if bound < default), 0)

    @cached_property
    def _stages(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        count = len(self.candidates.stages)
        models, thresholds = np.zeros((count, MOST_STAGES), dtype=np.int64), np.zeros((count, MOST_STAGES))
        at = np.full((count, MOST_STAGES), DECIDES_AT_END, dtype=np.int64)
        for c, stages in enumerate(self.candidates.stages):
            for s, stage in enumerate(stages):
                models[c, s] = stage.model
                if s < len(stages) - 1:
                    token = DECIDES_BY_ID if stage.at == BY_ID else DECIDE_AT_TOKENS[stage.at]
                    thresholds[c, s], at[c, s] = stage.threshold, DECIDES_AT_END if token is None else token
        return np.array([len(stages) for stages in self.candidates.stages]), models, thresholds, at


def without_idle_replicas(made: GearPlan) -> GearPlan:
    """The plan without replicas that have no share in any gear."""
    used = {one.replica for gear in made.pipeline.gears for one in gear.replicas if one.load_share > 0}
    return keeping(made, lambda replica: replica.id in used)
