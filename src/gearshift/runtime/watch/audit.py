"""The audit: asks the strongest model about some early answers, when there is slack."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from gearshift.clock import NS_PER_S
from gearshift.decisions import Ending
from gearshift.gear import GearPlan
from gearshift.model import LABEL
from gearshift.models.classes import class_names
from gearshift.plans.plan_tables import PipelineTables, PlanTables
from gearshift.policies.batching import AUDIT
from gearshift.policies.watch.audit import (
    MOST_AUDITED,
    alarm_after,
    disagreement_interval,
    has_slack,
    rest_until_ns,
    selected,
)
from gearshift.profiles.curves import strongest_of
from gearshift.profiles.profile import Profile
from gearshift.request import Request, Sample
from gearshift.result import wilson_interval
from gearshift.runtime.router.router import Router

LONGEST_WAIT_NS = NS_PER_S
"""After this time, an audit that has found no slack is dropped."""

Cell = tuple[int, int]
"""A gear and a stage of its cascade."""
Interval = tuple[float, float]


@dataclass(slots=True)
class Disagreement:
    """Audited early answers of a gear and stage, and those the strongest model disagrees with.

    `low` and `high` bound the share of all; `alarm` says on which side of the plan it is.
    """

    audited: int = 0
    disagreed: int = 0
    low: float = 0.0
    high: float = 1.0
    alarm: int = 0


@dataclass(slots=True)
class _Audit:
    sample: Sample
    cell: Cell
    answered: Any
    by_ns: int


class Audit:
    """Audits the `share` of a pipeline's early answers that a hash with `seed` selects, one at a time.

    `number` is that of the pipeline in the plan; it has one node, and one cascade in each gear. An
    early answer is one of another model than `strongest`, the strongest placed model, which that
    model's certainty gave: not one by time, which says nothing about thresholds. `planned` is
    the interval of disagreement expected from the records. `run_ns` is the strongest model's time
    for one sample. Above `planned_qps` there is no slack.
    """

    def __init__(
        self,
        tables: PlanTables,
        number: int = 0,
        *,
        share: float,
        seed: int,
        strongest: int,
        planned: Mapping[Cell, Interval],
        planned_qps: float,
        run_ns: int,
    ) -> None:
        self._share, self._seed, self._strongest, self._run_ns = share, seed, strongest, run_ns
        self._models, self._stage_of = len(tables.models), tables.stage_of.tolist()
        self._number, self._node = number, tables.pipelines[number].first_node
        first_row = int(tables.first_row[self._node])
        self._choice: list[int] = tables.choice_begin[first_row : first_row + tables.pipelines[number].gears].tolist()
        self._replicas = range(int(tables.model_begin[strongest]), int(tables.model_begin[strongest + 1]))
        self._planned_qps = planned_qps
        self._ids = count(-1, -1)
        self._waiting: _Audit | None = None
        self._running: dict[int, _Audit] = {}
        self._rest_until_ns = self._now_ns = 0
        self.planned = planned
        self.cells: dict[Cell, Disagreement] = {}
        self.dropped = 0

    def answered(self, sample: Sample, gear: int) -> None:
        if sample.model == self._strongest or sample.error or sample.degraded_by or sample.ending == Ending.TIME:
            return
        if not selected(sample.request.id, sample.row, self._seed, self._share):
            return
        stage = self._stage_of[self._choice[gear] * self._models + sample.model]
        if stage < 0 or _label(sample) is None:
            return
        if self._waiting is not None:
            self.dropped += 1
            return
        now_ns = self._now_ns
        of = Request(
            id=next(self._ids),
            operator=sample.request.operator,
            arrived_ns=now_ns,
            deadline_ns=now_ns,
            pipeline=self._number,
        )
        every = (1 << self._models) - 1
        again = Sample(of, 0, of.id, sample.payload, visited=every, entered_ns=now_ns, node=self._node)
        self._waiting = _Audit(again, (gear, stage), _label(sample), now_ns + LONGEST_WAIT_NS)

    def start(self, router: Router, now_ns: int) -> None:
        """Run the waiting audit if there is slack; drop it if there was none for too long."""
        audit, self._now_ns = self._waiting, now_ns
        if audit is None:
            return
        if has_slack(
            router.waiting, router.pipelines[self._number].load, self._planned_qps, now_ns, self._rest_until_ns
        ):
            for replica in self._replicas:
                if router.run_if_idle(replica, audit.sample, AUDIT, now_ns):
                    self._running[audit.sample.request.id] = audit
                    self._waiting = None
                    self._rest_until_ns = rest_until_ns(now_ns, self._run_ns)
                    return
        if now_ns >= audit.by_ns:
            self._waiting = None
            self.dropped += 1

    def finished(self, sample: Sample) -> tuple[Cell, bool, bool] | None:
        """The cell, whether both agree, whether the alarm changed; None if it does not count."""
        audit = self._running.pop(sample.request.id, None)
        if audit is None:
            return None
        said = _label(sample)
        if sample.error or sample.degraded_by or said is None:
            self.dropped += 1
            return None
        agree = said == audit.answered
        one = self.cells.setdefault(audit.cell, Disagreement())
        if one.audited == MOST_AUDITED:
            one.audited = one.disagreed = 0
        one.audited += 1
        one.disagreed += not agree
        one.low, one.high = disagreement_interval(one.disagreed, one.audited)
        planned, before = self.planned.get(audit.cell), one.alarm
        if planned is not None:
            one.alarm = alarm_after(before, one.audited, one.low, one.high, *planned)
        return audit.cell, agree, one.alarm != before


def make_audit(
    tables: PlanTables,
    plan: GearPlan,
    profile: Profile,
    *,
    share: float,
    seed: int,
    run_ns: Any,
    pipeline: str | None = None,
) -> Audit | None:
    """The audit of a pipeline, the only one if none is named, whose operator has this profile.

    None for a pipeline of several nodes, or one whose gears choose among cascades.
    """
    of = tables.pipeline if pipeline is None else tables.pipeline_named(pipeline)
    first_row = int(tables.first_row[of.first_node])
    if len(of.nodes) > 1 or (np.diff(tables.choice_begin[first_row : first_row + of.gears + 1]) > 1).any():
        return None
    placed = [model for model in tables.models if model in profile.models]
    strongest = tables.models.index(strongest_of(profile, placed))
    replica = int(tables.model_begin[strongest])
    gears = plan.pipelines[of.name].gears
    return Audit(
        tables,
        of.number,
        share=share,
        seed=seed,
        strongest=strongest,
        planned=planned_disagreement(tables, of, profile, strongest),
        planned_qps=float("inf") if gears[-1].predicted is None else gears[-1].predicted.load_qps,
        run_ns=int(run_ns[replica][1]),
    )


def planned_disagreement(
    tables: PlanTables, of: PipelineTables, profile: Profile, strongest: int
) -> dict[Cell, Interval]:
    """Wilson's interval of disagreement per gear and stage, over recorded samples.

    Stages of the strongest model, and those that answer no recorded sample, are left out; the
    result is empty if the profile has no predictions.
    """
    records = profile.predictions
    if records.prediction is None:
        return {}
    (best,) = records.rows((tables.models[strongest],))
    planned = {}
    for gear in range(of.gears):
        cascade = tables.cascade(gear, of.first_node)
        left = np.ones(len(records.part), dtype=np.bool_)
        for stage, name in enumerate(cascade.models):
            (row,) = records.rows((name,))
            last = stage == len(cascade.thresholds)
            sure = left if last else left & (records.certainty[row] >= cascade.thresholds[stage])
            answered = int(np.count_nonzero(sure))
            if row != best and answered:
                differs = records.prediction[row] != records.prediction[best]
                planned[gear, stage] = wilson_interval(int(np.count_nonzero(differs & sure)) / answered, answered)
            left = left & ~sure
    return planned


def _label(sample: Sample) -> Any:
    result: Any = sample.result
    if not isinstance(result, dict) or LABEL not in result:
        return None
    return class_names(np.asarray(result[LABEL]).reshape(1, -1)[0]).tolist()
