"""The router's steps after a fault: a worker that is lost, a batch that failed, replicas that are taken out."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.next_step import ANSWER
from gearshift.request import NOT_BULK, Sample
from gearshift.runtime.faults.failing import FailingReplicas
from gearshift.runtime.faults.retries import Retries
from gearshift.runtime.router.cascades import Cascades
from gearshift.runtime.router.dispatch import Dispatch
from gearshift.runtime.router.pipeline import Pipeline

Step = Callable[[Sample, int], None]


class Faults:
    """Moves the samples of replicas that are `lost` or `failing`.

    `route(sample, model, now_ns)` puts a sample into a queue, `answer(sample, now_ns)` answers it
    with what it has, and `done(sample)` ends it.
    """

    def __init__(
        self,
        tables: PlanTables,
        pipelines: Sequence[Pipeline],
        cascades: Cascades,
        dispatch: Dispatch,
        retries: Retries,
        failing: FailingReplicas,
        lost: list[bool],
        *,
        route: Callable[[Sample, int, int], None],
        answer: Step,
        done: Callable[[Sample], None],
    ) -> None:
        self._models, self._pipelines, self._cascades = tables.models, pipelines, cascades
        self._dispatch, self._by_deadline, self._retries = dispatch, dispatch.by_deadline, retries
        self._failing, self._lost = failing, lost
        self._route, self._answer, self._done = route, answer, done
        self._model_of: list[int] = tables.replica_model.tolist()
        self._replicas_of = [range(begin, end) for begin, end in pairwise(tables.model_begin.tolist())]

    # Who can answer.

    def lacking(self, pipeline: Pipeline) -> str:
        """A model with which requests of `pipeline` begin, and which has no replica; empty if each has one."""
        if True not in self._lost:
            return ""
        for model in pipeline.first_models:
            if all(self._lost[replica] for replica in self._replicas_of[model]):
                return str(self._models[model])
        return ""

    def can_answer(self, pipeline: Pipeline) -> bool:
        """Whether new requests of `pipeline` get an answer, perhaps from another stage than planned."""
        return not self.lacking(pipeline) and not any(
            all(self._failing.all_out(model) for model in self._cascades.stages(node)) for node in pipeline.entries
        )

    def share_anew(self, now_ns: int) -> None:
        """Share among the replicas in service; samples that wait for one that was just taken out go elsewhere."""
        before = [*self._failing.skipped]
        self._failing.update()
        for pipeline in self._pipelines:
            pipeline.turns.share_anew(pipeline.gear)
        for replica, skipped in enumerate(self._failing.skipped):
            if skipped and not before[replica] and not self._lost[replica]:
                for sample in self._dispatch.clear(replica, now_ns):
                    self._place(sample, now_ns)

    # Lost workers.

    def replicas_lost(self, replicas: Sequence[int], now_ns: int) -> None:
        for replica in replicas:
            self._lost[replica] = True
            self._failing.lost(replica)
        self.share_anew(now_ns)
        for replica in replicas:
            for sample in self._dispatch.clear(replica, now_ns):
                self._place(sample, now_ns)
            was_running = self._dispatch.running[replica]
            self._dispatch.leave_batch(replica, was_running, now_ns)
            self._run_apart(replica, [sample for sample in was_running if not sample.over], now_ns)
            self._dispatch.free(replica)
            self._dispatch.touch(replica)

    def replica_ready(self, replica: int, now_ns: int) -> None:
        self._lost[replica] = False
        self._failing.restarted(replica)
        self.share_anew(now_ns)
        self.place_stranded(now_ns)
        self._dispatch.touch(replica)

    def place_stranded(self, now_ns: int) -> None:
        stranded = self._retries.take_stranded(now_ns)
        self._dispatch.waits_no_more(stranded)
        for sample in stranded:
            self._place(sample, now_ns)

    def end(self, sample: Sample, now_ns: int) -> None:
        if sample.degraded_by:
            self._answer(sample, now_ns)
        else:
            self._done(sample)

    def _place(self, sample: Sample, now_ns: int) -> None:
        following = (self._cascades.next_step if sample.visited else self._cascades.begin)(sample, now_ns)
        if following == ANSWER:
            sample.stage = sample.visited.bit_count() - 1
            self._answer(sample, now_ns)
        else:
            sample.stage = sample.visited.bit_count()
            self._route(sample, following, now_ns)

    def _run_apart(self, replica: int, samples: Sequence[Sample], now_ns: int) -> None:
        """Run the samples of a lost replica again in halves, apart from others if possible."""
        model = self._model_of[replica]
        self._dispatch.waits(samples)
        ended = self._retries.keep_batch(replica, model, samples, now_ns)
        if all(self._lost[other] for other in self._replicas_of[model]):
            ended += self._retries.end_answered(model, now_ns)
        self._dispatch.waits_no_more(ended)
        for sample in ended:
            self.end(sample, now_ns)
        for other in self._replicas_of[model]:
            self._dispatch.touch(other)

    # Batches that failed.

    def judge(self, replica: int, samples: Sequence[Sample], why: str, now_ns: int, *, answers: bool = False) -> None:
        """Judge a replica by a batch that ended; `why` it failed, or empty; whether some rows got `answers` now."""
        took_ns = now_ns - self._dispatch.started_ns[replica]
        expected_ns = self._by_deadline.run_ns[replica][len(samples)]
        if self._failing.ended(
            replica, samples, why, answers=answers, took_ns=took_ns, expected_ns=expected_ns, now_ns=now_ns
        ):
            self.share_anew(now_ns)

    def goes_on(self, sample: Sample, replica: int, now_ns: int) -> bool:
        """Have another replica run a sample of a failed batch, or, if it has no answer, a later stage."""
        model = self._model_of[replica]
        if (sample.error and not sample.raised) or (sample.visited >> model) & 1:  # withdrawn, or an audit
            return False
        others = [] if sample.tried_again else self._failing.others(replica)
        if others and self._may_run(sample, model, now_ns) and self._failing.budget.take(now_ns):
            self._failing.try_again(sample, replica)
            self._queue_shortest(sample, others, now_ns)
            return True
        if sample.raised or sample.has_answer:
            return False
        following = self._cascades.after_skipping(sample, model, self._failing.all_out, now_ns)
        if following == ANSWER or not self._may_run(sample, following, now_ns):
            return False
        if not self._failing.budget.take(now_ns):
            return False
        self._route(sample, following, now_ns)
        return True

    def route_past(self, sample: Sample, model: int, failing: Sequence[int], now_ns: int) -> None:
        """Where all replicas of `model` fail: an earlier answer, a later stage, or one of them all the same."""
        if sample.has_answer:
            self._retries.end_unanswered(sample, model, now_ns)
            self.end(sample, now_ns)
            return
        following = self._cascades.after_skipping(sample, model, self._failing.all_out, now_ns)
        if following == ANSWER:
            self._queue_shortest(sample, failing, now_ns)
        else:
            self._route(sample, following, now_ns)

    def end_failed(self, sample: Sample, model: int, now_ns: int) -> None:
        """End a sample on which `model` failed, or to which it gave no answer."""
        if not sample.error:
            self._retries.end_unanswered(sample, model, now_ns)
        self.end(sample, now_ns)

    def _may_run(self, sample: Sample, model: int, now_ns: int) -> bool:
        """Whether a replica of `model` could answer in time."""
        if sample.has_answer:
            return self._by_deadline.may_forward(sample, model, now_ns)
        return self._by_deadline.may_begin(sample.request, model, now_ns)

    def _queue_shortest(self, sample: Sample, replicas: Sequence[int], now_ns: int) -> None:
        """Queue a sample for the replica for which fewest wait, even if it has no turn."""
        bulk = sample.request.bulk_gear != NOT_BULK
        lengths = self._dispatch.lengths()
        replica = min(replicas, key=lengths.__getitem__)
        (self._dispatch.queue_bulk if bulk else self._dispatch.queue)(sample, replica, now_ns)
