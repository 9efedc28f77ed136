"""The gear in force of a plan of language models, and the stages of its cascade."""

import math
from collections.abc import Iterator

from gearshift.gear import METER_BACKLOG
from gearshift.policies.engines.deciding import DECIDES_AT_END, DECIDES_BY_ID, first_stage
from gearshift.policies.gear_shift import gear_asked_for, gear_in_force
from gearshift.policies.next_step import NOT_IN_CASCADE
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.runtime.engines.requests.engine_request import EngineRequest


class GearInForce:
    """`row` and `settings` are where its entries begin in the tables of stages and of replicas."""

    def __init__(self, tables: EngineTables) -> None:
        self._most_stages, self._replicas = tables.most_stages, len(tables.replicas)
        self._upshift_margin = tables.upshift_margin
        self._range_starts: list[float] = tables.range_starts.tolist()
        self._stage_count: list[int] = tables.stage_count.tolist()
        self.stage_models: list[int] = tables.stage_models.tolist()
        self.thresholds: list[float] = tables.thresholds.tolist()
        self.decide_at: list[int] = tables.decide_at.tolist()
        self.gear, self._eased_ticks = 0, 0

    @property
    def row(self) -> int:
        return self.gear * self._most_stages

    @property
    def settings(self) -> int:
        return self.gear * self._replicas

    @property
    def stages(self) -> int:
        return self._stage_count[self.gear]

    @property
    def models(self) -> list[int]:
        return self.stage_models[self.row : self.row + self.stages]

    def for_load(self, load: float) -> int:
        """The gear that this load asks for, once it has done so for long enough."""
        starts = self._range_starts
        asked = gear_asked_for(METER_BACKLOG, self.gear, load, 0, 0.0, starts, len(starts))
        gear, self._eased_ticks = gear_in_force(self.gear, asked, self._eased_ticks, load, starts, self._upshift_margin)
        return gear

    def begin_at(self, load: float) -> None:
        starts = self._range_starts
        self.gear = gear_asked_for(METER_BACKLOG, self.gear, load, 0, 0.0, starts, len(starts))

    def shift(self, gear: int) -> None:
        self.gear, self._eased_ticks = gear, 0

    def first_stage(self, request: EngineRequest) -> int:
        if request.last_alone:
            return self.stages - 1
        return first_stage(request.by_id, self.stages, self.thresholds, self.decide_at, self.row)

    def stage_of(self, model: int, gear: int | None = None) -> int:
        """The model's place in the cascade of a gear, else of the one in force, or `NOT_IN_CASCADE`."""
        gear = self.gear if gear is None else gear
        row = gear * self._most_stages
        for stage in range(self._stage_count[gear]):
            if self.stage_models[row + stage] == model:
                return stage
        return NOT_IN_CASCADE

    def later_models(self, model: int) -> Iterator[int]:
        """The model itself, and those of the stages after it."""
        yield model
        stage = self.stage_of(model)
        if stage != NOT_IN_CASCADE:
            yield from self.stage_models[self.row + stage + 1 : self.row + self.stages]

    def decides_at(self, stage: int) -> int:
        """The token at which a stage decides; 0 where it does so before its first, as the last one does."""
        return DECIDES_BY_ID if stage in (NOT_IN_CASCADE, self.stages - 1) else self.decide_at[self.row + stage]

    def threshold_of(self, model: int) -> float:
        """That of the model's stage; nan where it has none, or is the last."""
        stage = self.stage_of(model)
        decides = stage != NOT_IN_CASCADE and stage < self.stages - 1
        return self.thresholds[self.row + stage] if decides else math.nan

    def may_cut(self, request: EngineRequest) -> bool:
        """Whether the answer that it runs for might have been cut off at a token, so that whole ones are no sample."""
        gear = request.gear if request.answered else self.gear
        stage = self.stage_of(request.model, gear)
        decides = stage not in (NOT_IN_CASCADE, self._stage_count[gear] - 1) and not request.whole
        return decides and self.decide_at[gear * self._most_stages + stage] not in (DECIDES_AT_END, DECIDES_BY_ID)
