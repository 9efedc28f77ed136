"""When the samples of a batch leave a model with learned caches, by profile and records."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gearshift.profiles.run_times import Exits
from gearshift.request import Sample


@dataclass(frozen=True, slots=True, order=True)
class Leaving:
    """Samples that leave a batch together, `after_ns` from its start; `last`: none are left."""

    segment: int
    after_ns: int = field(compare=False)
    samples: Sequence[Sample] = field(compare=False)
    last: bool = field(compare=False)


class ProfiledExits:
    """How batches run: as a whole for `run_ns` (replicas, sizes), or from exit to exit."""

    def __init__(self, run_ns: Sequence[Sequence[int]], exits: Exits | None, replica_model: Sequence[int]) -> None:
        self._run_ns = run_ns
        self._model_of = [int(model) for model in replica_model]
        self._segment_ns = None if exits is None else exits.segment_ns.tolist()
        self._exit_segment = None if exits is None else exits.exit_segment.tolist()

    @property
    def recorded(self) -> bool:
        """Whether any model has learned caches, so that it matters which samples a batch has."""
        return self._segment_ns is not None

    def of_batch(self, replica: int, samples: Sequence[Sample], records: Sequence[int]) -> list[Leaving]:
        """The leavings in order; `records` number the recorded samples (unknown: last exit)."""
        if self._segment_ns is None or self._exit_segment is None:
            return [Leaving(0, self._run_ns[replica][len(samples)], samples, last=True)]
        segment_ns, exits = self._segment_ns[replica], self._exit_segment[self._model_of[replica]]
        last = max(exits)
        at = [exits[record] if 0 <= record < len(exits) else last for record in records]
        result, after_ns, done = [], 0, 0
        for segment in sorted(set(at)):
            left = sum(exit >= segment for exit in at)
            after_ns += sum(segment_ns[k][left] for k in range(done, segment + 1))
            leaving = [sample for sample, exit in zip(samples, at, strict=True) if exit == segment]
            result.append(Leaving(segment, after_ns, leaving, last=len(leaving) == left))
            done = segment + 1
        return result
