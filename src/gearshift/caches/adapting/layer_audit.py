"""What audits say of each learned cache: whether its hits are still answered as the base model would answer them."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from gearshift.errors import InvalidInput
from gearshift.policies.watch.audit import MOST_AUDITED, cache_breaches, disagreement_interval
from gearshift.support.files import read_bytes, write_atomically

AUDITS = "audits.json"
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_AUDITED)]


@dataclass(slots=True)
class Audited:
    """Answers that were audited, and with how many the base model disagrees."""

    audited: Count = 0
    disagreed: Count = 0

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


class SavedAudits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `audits.json`: counts of a version of a build, `whole` by where answers left early or none did."""

    built: str
    version: int
    layers: dict[int, Audited]
    whole: dict[int, Audited]
    ran: Audited

    def __post_init__(self) -> None:
        counts = (*self.layers.values(), *self.whole.values(), self.ran)
        if any(one.disagreed > one.audited for one in counts):
            raise ValueError("more audits disagreed than there were")


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

    def save(self, folder: Path, built: str, version: int) -> None:
        """Write all counts, so that a restart goes on with them; raises `InvalidInput` where that is impossible."""
        whole = {layer: one for layer, one in self._whole.items() if layer is not None}
        ran = self._whole.get(None, Audited())
        saved = SavedAudits(built=built, version=version, layers=self.layers, whole=whole, ran=ran)
        write_atomically(folder / AUDITS, msgspec.json.encode(saved) + b"\n")

    def load(self, folder: Path, built: str, version: int, layers: Collection[int]) -> str:
        """Take up what was saved of this version, of caches after `layers`; why that cannot be, where it cannot."""
        path = folder / AUDITS
        if not path.is_file():
            return ""
        try:
            saved = msgspec.json.decode(read_bytes(path), type=SavedAudits)
        except InvalidInput as error:
            return str(error)
        except (msgspec.MsgspecError, ValueError) as error:
            return f"{path} is broken ({error})"
        if (saved.built, saved.version) != (built, version):
            return ""  # another one was in use then; this one's counts begin anew, as with any switch
        if not {*saved.layers, *saved.whole} <= set(layers):
            return f"{path} counts caches that there are not"
        self.layers, self._whole = saved.layers, {None: saved.ran} | saved.whole
        return ""
