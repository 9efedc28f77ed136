"""Models that have given no answers of late, such as those behind an endpoint that is down."""

from collections.abc import Iterator, Sequence

from gearshift.policies.watch.lost_workers import is_silent
from gearshift.request import Sample


class Silence:
    """Counts consecutive batches without an answer, by model, and judges them at each tick."""

    def __init__(self, models: Sequence[str]) -> None:
        self._models = tuple(models)
        self._batches = dict.fromkeys(self._models, 0)
        self._last_ns = dict.fromkeys(self._models, 0)
        self.models: frozenset[str] = frozenset()
        """The models that are silent now."""

    def samples_finished(self, model: str, samples: Sequence[Sample], now_ns: int) -> None:
        if not all(sample.unreached for sample in samples):
            self._batches[model] = 0
        else:
            self._batches[model] += 1
            self._last_ns[model] = now_ns

    def ticked(self, now_ns: int) -> Iterator[tuple[str, bool]]:
        """The models that became silent or stopped being so."""
        silent = {model for model in self._models if is_silent(self._batches[model], self._last_ns[model], now_ns)}
        changed, self.models = self.models ^ silent, frozenset(silent)
        for model in sorted(changed):
            yield model, model in silent
