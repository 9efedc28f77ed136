"""What audits say of each learned cache: whether its hits are still answered as the base model would answer them."""

from dataclasses import dataclass

from gearshift.policies.audit import MOST_AUDITED, cache_breaches, disagreement_interval


@dataclass(slots=True)
class Audited:
    """Answers that were audited, and with how many the base model disagrees."""

    audited: int = 0
    disagreed: int = 0

    def add(self, *, agreed: bool) -> None:
        """One more; very many are halved first, so that what was long ago does not hide what is now."""
        if self.audited == MOST_AUDITED:
            self.halve()
        self.audited += 1
        self.disagreed += not agreed

    def halve(self) -> None:
        """Let what was count half as much."""
        self.audited, self.disagreed = round(self.audited / 2), round(self.disagreed / 2)

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of the share of disagreement; they hold at all times at once until counts are first halved.

        After that they are a heuristic: half of what they count is older, and was looked at before.
        """
        return disagreement_interval(self.disagreed, self.audited)


class LayerAudit:
    """Counts of one version's caches by layer, and of all its answers, those that ran to the end among them.

    `target` is the share of answers that are to be the base model's.  The whole has counts of its own by where answers
    left, which are halved together, so that each weighs by its share of the answers.
    """

    def __init__(self, target: float) -> None:
        self._target = target
        self.layers: dict[int, Audited] = {}
        self._whole: dict[int | None, Audited] = {}

    @property
    def whole(self) -> Audited:
        """All answers together, but those of caches that were switched off."""
        parts = self._whole.values()
        return Audited(sum(part.audited for part in parts), sum(part.disagreed for part in parts))

    def add(self, layer: int | None, *, agreed: bool) -> bool:
        """An audited answer left after `layer`, or nowhere early; whether that cache must not answer any more.

        Raises nothing; the answers of a cache that is switched off already may still come.
        """
        if self.whole.audited >= MOST_AUDITED:
            for part in self._whole.values():
                part.halve()
        self._whole.setdefault(layer, Audited()).add(agreed=agreed)
        if layer is None:
            return False
        one, whole = self.layers.setdefault(layer, Audited()), self.whole
        one.add(agreed=agreed)
        return cache_breaches((one.disagreed, one.audited), (whole.disagreed, whole.audited), self._target)

    def switched_off(self, layer: int) -> None:
        """A cache is looked up no more: its answers go from the whole, the others are the same as before."""
        self._whole.pop(layer, None)
