"""What audits say of each learned cache: whether its hits are still answered as the base model would answer them."""

from dataclasses import dataclass

from gearshift.policies.audit import MOST_AUDITED, cache_breaches, disagreement_interval


@dataclass(slots=True)
class Audited:
    """Answers that were audited, and with how many the base model disagrees."""

    audited: int = 0
    disagreed: int = 0

    def add(self, *, agreed: bool) -> None:
        """One more; an estimate of very many begins anew, so that what was long ago does not hide what is now."""
        if self.audited == MOST_AUDITED:
            self.audited = self.disagreed = 0
        self.audited += 1
        self.disagreed += not agreed

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of the share of disagreement that hold at all times at once."""
        return disagreement_interval(self.disagreed, self.audited)


class LayerAudit:
    """Counts of one version's caches by layer, and of all its answers, those that ran to the end among them.

    `target` is the share of answers that are to be the base model's.
    """

    def __init__(self, target: float) -> None:
        self._target = target
        self.layers: dict[int, Audited] = {}
        self.whole = Audited()

    def add(self, layer: int | None, *, agreed: bool) -> bool:
        """An audited answer left after `layer`, or nowhere early; whether that cache must not answer any more.

        Raises nothing; the answers of a cache that is switched off already may still come.
        """
        self.whole.add(agreed=agreed)
        if layer is None:
            return False
        one = self.layers.setdefault(layer, Audited())
        one.add(agreed=agreed)
        return cache_breaches(one.interval[0], self.whole.interval[1], self._target)

    def switched_off(self) -> None:
        """A cache is looked up no more: the answers as a whole are others from now on."""
        self.whole = Audited()
