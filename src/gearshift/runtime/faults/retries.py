"""Samples of workers that ended: decides which run again, and keeps them until then."""

from collections import deque
from collections.abc import Sequence

from gearshift.policies.watch.lost_workers import (
    DEGRADE,
    POISONOUS,
    REFUSE,
    RUN_AGAIN,
    WAIT,
    after_loss,
    half,
    retry_until_ns,
    without_replica,
)
from gearshift.request import Sample

LONGEST_RETRY_NS = 30_000_000_000


class Retries:
    """Groups of samples that were running, to be run apart, and stranded ones without a replica.

    A group stays with its model: the first idle replica of the model takes it. `count` is the
    number of all samples here; `next_ns` is the earliest time at which a sample may expire (too
    early if samples have left). A sample runs again within `longest_retry_ns` of its last run, or
    of when it had no replica to wait for; if the client gave a deadline, also in time for it by
    `run_ns` (replicas, sizes), the profiled times. A sample that an earlier stage has answered
    does not wait for a replica: it keeps that answer, or is refused with `refuse_lost_stage`.
    """

    def __init__(
        self,
        models: Sequence[str],
        *,
        run_ns: Sequence[Sequence[int]] | None = None,
        longest_retry_ns: int = LONGEST_RETRY_NS,
        refuse_lost_stage: bool = False,
    ) -> None:
        self._models, self._run_ns = models, run_ns
        self._longest_retry_ns, self._refuse_lost_stage = longest_retry_ns, refuse_lost_stage
        self._groups: list[deque[list[Sample]]] = [deque() for _ in models]
        self._stranded: dict[int, Sample] = {}
        self.by_objective = False
        """Whether a sample with an answer waits no longer than the latency objective, as where rows are refined."""
        self.count = 0
        self.next_ns: int | None = None

    # Losses.

    def keep_batch(self, replica: int, model: int, samples: Sequence[Sample], now_ns: int) -> list[Sample]:
        """Keep samples of a lost batch that may run again, in two groups; return the others."""
        run_ns = self._run_ns[replica][len(samples)] if self._run_ns is not None else 0
        again, ended = [], []
        for sample in samples:
            self._limit(sample, run_ns, now_ns)
            if sample.error:
                ended.append(sample)
                continue
            verdict = after_loss(sample.attempt, len(samples) - 1, now_ns, _run_by_ns(sample))
            if verdict == RUN_AGAIN:
                sample.attempt += 1
                sample.entered_ns = now_ns
                again.append(sample)
            elif verdict == POISONOUS:
                sample.poisonous = True
                sample.error = (
                    f"{sample.attempt} workers of model {self._models[model]!r} ended while they ran this request, "
                    "the last of them with nothing beside it; it is not run again"
                )
                ended.append(sample)
            else:
                self._end(
                    sample, f"the worker of model {self._models[model]!r} ended while it ran this request", now_ns
                )
                ended.append(sample)
        first = half(len(again))
        self._groups[model] += [part for part in (again[:first], again[first:]) if part]
        self.count += len(again)
        self._remember(again)
        return ended

    def keep(self, sample: Sample, model: int, now_ns: int) -> bool:
        """Keep a sample for which `model` has no replica; False if it ends now."""
        if sample.run_by_ns is None:
            self._limit(sample, 0, now_ns)
        if not self._end(sample, self._no_worker(model), now_ns):
            sample.entered_ns = now_ns
            self._stranded[sample.sequence] = sample
            self.count += 1
            self._remember((sample,))
            return True
        return False

    # Running again.

    def has_group(self, model: int) -> bool:
        return bool(self._groups[model])

    def take_group(self, model: int) -> list[Sample]:
        group = self._groups[model].popleft()
        self.count -= len(group)
        return group

    def take_stranded(self, now_ns: int) -> list[Sample]:
        gone = list(self._stranded.values())
        self._stranded.clear()
        self.count -= len(gone)
        return _waited(gone, now_ns)

    # Endings.

    def end_answered(self, model: int, now_ns: int) -> list[Sample]:
        """End the already answered samples in groups of `model`, which has no replica left."""
        answered = [sample for group in self._groups[model] for sample in group if sample.has_answer]
        for sample in answered:
            self.remove(sample)
            self._end(sample, self._no_worker(model), now_ns)
        return _waited(answered, now_ns)

    def end_unanswered(self, sample: Sample, model: int, now_ns: int) -> None:
        """End a sample to which `model` gave, or gives, no answer, as if its time to run were over."""
        sample.run_by_ns = now_ns - 1
        self._end(sample, f"model {self._models[model]!r} gave no answer", now_ns)

    def end_expired(self, now_ns: int) -> list[Sample]:
        ended = [sample for sample in self._all() if _run_by_ns(sample) < now_ns]
        for sample in ended:
            self.remove(sample)
            self._end(sample, "the worker that held this request ended, and no other was free in time", now_ns)
        self.next_ns = None
        self._remember(self._all())
        return _waited(ended, now_ns)

    def remove(self, sample: Sample) -> bool:
        if self._stranded.pop(sample.sequence, None) is None and not self._remove_from_group(sample):
            return False
        self.count -= 1
        return True

    def _remove_from_group(self, sample: Sample) -> bool:
        if sample.attempt == 1:  # it has lost no worker, like almost all samples
            return False
        for groups in self._groups:
            for group in groups:
                if sample in group:
                    group.remove(sample)
                    if not group:
                        groups.remove(group)
                    return True
        return False

    def _end(self, sample: Sample, reason: str, now_ns: int) -> bool:
        """Give a sample its last answer or its error; False if it may wait."""
        verdict = without_replica(sample.has_answer, self._refuse_lost_stage, now_ns, _run_by_ns(sample))
        if verdict == WAIT:
            return False
        if verdict == DEGRADE:
            sample.stage = sample.visited.bit_count() - 1
            sample.degraded_by = reason
        else:
            sample.refused = verdict == REFUSE
            sample.error = f"{reason}; try again later"
        return True

    def _no_worker(self, model: int) -> str:
        return f"no worker of model {self._models[model]!r} is running"

    def _limit(self, sample: Sample, run_ns: int, now_ns: int) -> None:
        deadline_ns = sample.request.deadline_ns
        if self.by_objective and sample.has_answer:
            deadline_ns = min(deadline_ns, sample.request.answer_by_ns)
        sample.run_by_ns = retry_until_ns(now_ns, self._longest_retry_ns, deadline_ns, run_ns)

    def _all(self) -> list[Sample]:
        return [*(sample for groups in self._groups for group in groups for sample in group), *self._stranded.values()]

    def _remember(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            over_ns = _run_by_ns(sample) + 1
            if self.next_ns is None or over_ns < self.next_ns:
                self.next_ns = over_ns


def _run_by_ns(sample: Sample) -> int:
    assert sample.run_by_ns is not None
    return sample.run_by_ns


def _waited(samples: list[Sample], now_ns: int) -> list[Sample]:
    for sample in samples:
        sample.queue_ns += now_ns - sample.entered_ns
    return samples
