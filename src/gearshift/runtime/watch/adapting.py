"""Watches load, run times and early answers of a service, for drift from the plan."""

import logging
from collections.abc import Callable, Sequence
from typing import Literal

from gearshift.observability.adapting_metrics import AdaptingMetrics
from gearshift.observability.journal import Journal
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.watch.audit import ABOVE, BELOW, INSIDE
from gearshift.request import Sample
from gearshift.runtime.router.router import Router
from gearshift.runtime.router.status import AdaptingStatus, DisagreementStatus
from gearshift.runtime.watch.audit import Audit, Cell
from gearshift.runtime.watch.drift import SHORTEST_WINDOW_S, LiveTrace, LoadDrift, ModelTimes, ProfileDrift

PROFILE_AGAIN = "run times are not as profiled: run `gearshift profile` and `gearshift plan` again on this machine"

log = logging.getLogger(__name__)


class Adapting:
    """Reports load drift, profile drift and disagreement of one pipeline to metrics and journal.

    `number` is the pipeline's in the plan. Driven by the service's events. `drifts` is called at
    each judgement that finds the load drifted. Profiled times `run_ns` (replicas, sizes) and an
    `audit` are watched if given.
    """

    def __init__(
        self,
        tables: PlanTables,
        number: int = 0,
        *,
        window_s: float = SHORTEST_WINDOW_S,
        run_ns: Sequence[Sequence[int]] = (),
        audit: Audit | None = None,
        journal: Journal | None = None,
        drifts: Callable[[], None] = lambda: None,
    ) -> None:
        of = tables.pipelines[number]
        self.pipeline, self._number, self._audit, self._drifts = of.name, number, audit, drifts
        self._tables, self._models = tables, tables.models_used_by(number)
        self._journal = journal or Journal()
        self._named = {"pipeline": of.name} if len(tables.pipelines) > 1 else {}
        self._about = f" of pipeline {of.name!r}" if self._named else ""
        self._load, self._times = LoadDrift(of, window_s), ProfileDrift(tables, run_ns)
        self._metrics = AdaptingMetrics()
        self.trace = LiveTrace()
        self.audit: Callable[[Router, int], None] = _not_audited if audit is None else audit.start
        """Runs the answer that waits for a second one, if there is slack."""

    @property
    def window_s(self) -> float:
        return self._load.window_s

    def uses(self, replica: int) -> bool:
        """Whether the pipeline uses the model of `replica`."""
        return self._tables.model_of(replica) in self._models

    def tell(self, metrics: AdaptingMetrics) -> None:
        self._metrics = metrics

    def take_over_from(self, before: "Adapting") -> None:
        """Take over the metrics, arrivals and `drifts` of `before`; drop judgements by its plan.

        `before` may still get events, from a service that is ending, but no longer reports.
        """
        self._metrics, self.trace, self._drifts = before._metrics, before.trace, before._drifts
        self._metrics.forget_plan()
        before._metrics, before.trace, before._drifts = AdaptingMetrics(), LiveTrace(), lambda: None

    # Events ----------------------------------------------------------------------------------------------------------

    def ticked(self, router: Router, now_ns: int) -> None:
        self.trace.ticked(now_ns)
        before = self._load.drifting
        if self._load.ticked(router.pipelines[self._number].rate_qps):
            self._judge_load(before)
        self._metrics.load_factor.set(router.pipelines[self._number].scaling.factor)
        if router.slowdown.on:
            self._tell_slowdown(router)
        for times in self._times.ticked():
            self._tell_times(times)
        self.audit(router, now_ns)

    def batch_finished(self, router: Router, replica: int, size: int, took_ns: int, now_ns: int) -> None:
        self._times.batch_finished(replica, size, took_ns)
        self.audit(router, now_ns)

    def answered(self, sample: Sample, gear: int) -> None:
        if self._audit is not None:
            self._audit.answered(sample, gear)

    def second_answer(self, sample: Sample) -> None:
        """Handle a sample that no request waits for, perhaps one from the audit."""
        audited = None if self._audit is None else self._audit.finished(sample)
        if audited is None or self._audit is None:
            return
        cell, agree, changed = audited
        self._metrics.audits.labels("agreed" if agree else "disagreed").inc()
        self._tell_disagreement(self._audit, cell, changed=changed)

    # Reports ---------------------------------------------------------------------------------------------------------

    def _judge_load(self, before: bool) -> None:
        load = self._load
        self._metrics.load_distance.set(load.distance)
        self._metrics.load_drift.set(load.drifting)
        if load.drifting != before:
            facts = {"distance": round(load.distance, 4), "window_s": load.window_s}
            self._journal.write("load_drift", **self._named, drifting=load.drifting, **facts)
            if load.drifting:
                log.warning(
                    "load%s has drifted: %.0f %% of the time it is elsewhere than planned; "
                    "plan anew from a trace of now",
                    self._about,
                    100 * load.distance,
                )
        if load.drifting:
            self._drifts()

    def _tell_slowdown(self, router: Router) -> None:
        for first in set(router.slowdown.alike):
            if self.uses(first):
                labels = self._tables.model_of(first), self._tables.replica_ids[first]
                self._metrics.slowdown.labels(*labels).set(router.slowdown.of(first))

    def _tell_times(self, times: ModelTimes) -> None:
        model, drifting = self._tables.models[times.model], self._times.drifting[times.model]
        for size, ratio in times.by_size.items():
            self._metrics.run_time.labels(model, str(size)).set(ratio)
        self._metrics.profile_drift.labels(model).set(drifting)
        if times.changed:
            advice = {"advice": PROFILE_AGAIN} if drifting else {}
            self._journal.write(
                "profile_drift", **self._named, model=model, drifting=drifting, ratio=round(times.ratio, 4), **advice
            )
            if drifting:
                log.warning("model %r takes %.2f times what was profiled; %s", model, times.ratio, PROFILE_AGAIN)

    def _tell_disagreement(self, audit: Audit, cell: Cell, *, changed: bool) -> None:
        one, (gear, stage) = audit.cells[cell], cell
        bounds = {"estimate": one.disagreed / one.audited, "low": one.low, "high": one.high}
        planned = audit.planned.get(cell)
        if planned is not None:
            bounds |= {"planned_low": planned[0], "planned_high": planned[1]}
        for bound, value in bounds.items():
            self._metrics.disagreement.labels(str(gear), str(stage), bound).set(value)
        self._metrics.disagreement_alarm.labels(str(gear), str(stage)).set(one.alarm)
        if changed:
            facts = {name: round(value, 4) for name, value in bounds.items()}
            side = _SIDES[one.alarm]
            self._journal.write(
                "disagreement", **self._named, gear=gear, stage=stage, alarm=side, audited=one.audited, **facts
            )
            if side:
                log.warning(
                    "the strongest model disagrees with %.1f %% to %.1f %% of the answers of stage %d in gear %d%s, %s "
                    "the planned %.1f %% to %.1f %%",
                    *(100 * one.low, 100 * one.high, stage, gear, self._about, side),
                    *(100 * bounds["planned_low"], 100 * bounds["planned_high"]),
                )

    # Operators -------------------------------------------------------------------------------------------------------

    def status(self, router: Router) -> AdaptingStatus:
        audit, tables = self._audit, self._tables
        return AdaptingStatus(
            load_distance=self._load.distance,
            load_drifts=self._load.drifting,
            window_s=self._load.window_s,
            load_factor=router.pipelines[self._number].scaling.factor,
            slow_or_fast_models=[m for m, off in zip(tables.models, self._times.drifting, strict=True) if off],
            disagreement=[] if audit is None else [self._disagreement(audit, cell) for cell in sorted(audit.cells)],
            audits_dropped=0 if audit is None else audit.dropped,
        )

    def _disagreement(self, audit: Audit, cell: Cell) -> DisagreementStatus:
        one, (gear, stage) = audit.cells[cell], cell
        low, high = audit.planned.get(cell, (None, None))
        return DisagreementStatus(
            gear=gear,
            stage=stage,
            model=self._tables.cascade(gear, self._tables.pipelines[self._number].first_node).models[stage],
            audited=one.audited,
            disagreed=one.disagreed,
            low=one.low,
            high=one.high,
            planned_low=low,
            planned_high=high,
            alarm=_SIDES[one.alarm],
        )


def _not_audited(router: Router, now_ns: int) -> None:
    pass


_SIDES: dict[int, Literal["", "above", "below"]] = {INSIDE: "", ABOVE: "above", BELOW: "below"}
