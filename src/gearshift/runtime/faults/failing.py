"""Judges replicas by how their batches end: which take samples, which start batches, and what share the slow ones get.

`policies/watch/ejection.py` decides. A failing replica gets nothing while others of its model are in
service. Where all of a model fail, a sample with an answer keeps that answer, and one without goes
to a later stage; only where there is none, the failing replicas are asked all the same.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from gearshift.plans.plan_tables import PlanTables
from gearshift.request import Sample
from gearshift.runtime.faults.ejections import Ejections, OnChange, RetryBudget

NO_ANSWER, RAISED, LOST = "no_answer", "raised", "lost"
"""Why a batch failed: nothing came back for any row, the model raised on all of them, or its worker ended."""
OnFailure = Callable[[int, str], None]
"""Called with a replica, and why its batch failed."""
WHOLE_SHARE, LEAST_CHANGE = 1000, 100
"""Shares of slow replicas change in steps of at least a tenth."""


class FailingReplicas:
    """The state of all replicas; `lost` marks those without a worker.

    `skipped` replicas are chosen for no sample, `barred` ones start no batch. `failed` is told of
    each batch that failed, `changed` of each replica that is taken out or answers again. With
    `weighs`, replicas that are slow beside others of their model get a smaller share.
    """

    def __init__(
        self,
        tables: PlanTables,
        lost: Sequence[bool],
        *,
        failed: OnFailure | None = None,
        changed: OnChange | None = None,
        weighs: bool = False,
    ) -> None:
        self._model_of: list[int] = tables.replica_model.tolist()
        self._replicas_of = [range(begin, end) for begin, end in pairwise(tables.model_begin.tolist())]
        self._lost, self._failed, self._weighs = lost, failed, weighs
        self.ejections = Ejections(self._model_of, changed)
        largest = tables.largest_batch_size.reshape(-1, len(self._model_of)).max(axis=0)
        self.budget = RetryBudget(int(largest.sum()))
        self.skipped, self.barred = [False] * len(lost), [False] * len(lost)
        self.probes: list[int] = []
        """Replicas whose probe has started: other samples that wait for them are to go elsewhere."""
        self._any_out = False
        self._partly: set[int] = set()
        """Replicas of whose running batch some rows were answered already."""
        self._weights = [WHOLE_SHARE] * len(lost)
        self._paced = False

    # Who takes what.

    def update(self) -> None:
        """Take over which are lost or out."""
        out = self.ejections.is_out
        self._any_out = any(out)
        for replica, lost in enumerate(self._lost):
            self.skipped[replica] = lost or out[replica]
        for replica, lost in enumerate(self._lost):
            self.barred[replica] = lost or (out[replica] and not self.all_out(self._model_of[replica]))

    def all_out(self, model: int) -> bool:
        """Whether no replica of a model is in service."""
        return all(self.skipped[replica] for replica in self._replicas_of[model])

    def living(self, model: int) -> list[int]:
        """The replicas of a model that have a worker, where they are all taken out; else none."""
        if not self._any_out or not self.all_out(model):
            return []
        return [replica for replica in self._replicas_of[model] if not self._lost[replica]]

    def others(self, replica: int) -> list[int]:
        """Other replicas of its model that are in service."""
        of = self._replicas_of[self._model_of[replica]]
        return [other for other in of if other != replica and not self.skipped[other]]

    def answer(self, model: int) -> bool:
        """Whether some replica of a model has a worker and does not fail."""
        failing = self.ejections.is_failing
        return any(not self._lost[replica] and not failing(replica) for replica in self._replicas_of[model])

    def weigh(self, replica: int, share: int) -> int:
        return share * self._weights[replica] // WHOLE_SHARE or min(share, 1)

    # How batches end.

    def sent(self, replica: int) -> None:
        if self.ejections.sent(replica):
            self.probes.append(replica)

    def partly_ended(self, replica: int) -> None:
        """Note that some rows of the running batch were answered."""
        self._partly.add(replica)

    def why_failed(self, replica: int, samples: Sequence[Sample]) -> str:
        """Why the batch that `samples` end without answers has failed; empty if it has not, or they may be to blame."""
        if replica in self._partly or not all(sample.unreached or sample.raised for sample in samples):
            return ""
        return NO_ANSWER if any(sample.unreached for sample in samples) else RAISED

    def ended(
        self,
        replica: int,
        samples: Sequence[Sample],
        why: str,
        *,
        answers: bool,
        took_ns: int,
        expected_ns: int,
        now_ns: int,
    ) -> bool:
        """Judge the replica; whether it, or another, was taken out or is in service again.

        With `answers`, some of the samples have got one. Where its model raised on all rows, they may be
        to blame. That is known once another replica has run them; where none does, rows of a single
        request tell nothing.
        """
        out, ejections = self.ejections.is_out[replica], self.ejections
        others = {sample.raised_at for sample in samples if sample.raised_at >= 0}
        changed = False
        if why:
            if self._failed is not None:
                self._failed(replica, why)
            several = any(sample.request is not samples[0].request for sample in samples)
            if why == NO_ANSWER or (several and not others):
                ejections.failed(replica, now_ns)
            else:
                ejections.left(replica)
        elif answers or replica in self._partly:
            ejections.succeeded(replica, now_ns)
            if self._weighs and expected_ns > 0 and replica not in self._partly:
                self._paced = True
                ejections.took(replica, took_ns, expected_ns)
            for other in sorted(others):  # another replica has answered what it raised on
                before = ejections.is_out[other]
                ejections.failed(other, now_ns)
                changed |= ejections.is_out[other] != before
        else:
            ejections.left(replica)
        self._partly.discard(replica)
        return changed or ejections.is_out[replica] != out

    def try_again(self, sample: Sample, replica: int) -> None:
        """Prepare a sample of a failed batch of `replica` for another one."""
        sample.tried_again, sample.raised_at = True, replica if sample.raised else -1
        sample.raised = sample.unanswered = sample.unreached = False
        sample.error = ""

    def lost(self, replica: int) -> None:
        self._partly.discard(replica)

    def restarted(self, replica: int) -> None:
        self.ejections.restarted(replica)
        self._weights[replica] = WHOLE_SHARE

    # Time.

    def ticked(self, now_ns: int) -> bool:
        """Whether shares have changed: pauses are over, or replicas have become slow or fast."""
        due = self.ejections.look(now_ns) if self._any_out else False
        return self._weigh_again() or due

    def _weigh_again(self) -> bool:
        if not self._paced:
            return False
        self._paced, weights = False, list(self.ejections.shares([WHOLE_SHARE] * len(self._weights)))
        if all(abs(new - old) < LEAST_CHANGE for new, old in zip(weights, self._weights, strict=True)):
            return False
        self._weights = weights
        return True
