"""The manifest of learned caches: which were explored and chosen, why, and for which weights."""

import math
from itertools import count
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from gearshift.errors import require
from gearshift.result import share_bound, wilson_interval
from gearshift.support.decoding import decode_json
from gearshift.support.files import PathLike, read_bytes

MANIFEST = "manifest.json"
SCHEMA_VERSION = 2
CHECKED_SHARE = 0.2
"""Share of the samples of the build on which agreement is counted."""

LIKELY = 0.9
"""Confidence that `build` has in the target if none is asked for."""
CLASS_MIX = "class mix"
"""The reason of a version that was set for another class mix without training."""

Lookups = Literal["inline", "beside"]
"""Whether a lookup delays the base model ("inline") or runs beside it."""
Size = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
Sizes = Annotated[tuple[Size, ...], msgspec.Meta(max_length=8)]


class Variant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A variant after a block, judged on samples that it was not trained on.

    `level` is the accuracy of hits that its threshold aims at, `accuracy` the measured one,
    relative to the base model. `shape` is that of the hidden output without rows, `lookup_s` is
    for one row. A `spare` variant is stored for adaptation and not looked up.
    """

    layer: int
    block: str
    variant: str
    level: float
    shape: Sizes
    hit_rate: float
    accuracy: float
    lookup_s: float
    memory_bytes: int
    chosen: bool = False
    spare: bool = False
    why: str = ""


class Choice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The choice of one composition method, as numbers of variants, and its results.

    `expected_latency_s` assumes that later caches hit all that earlier ones hit. `gap_s` bounds
    how much lower the latency that the method minimises could be.
    """

    method: str
    chosen: tuple[int, ...]
    expected_latency_s: float
    latency_s: float
    accuracy: float
    memory_bytes: int
    gap_s: float = 0.0


class Adapted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How adaptation made a version: from version `before`, at `at_s` (Unix time), for `reason`.

    It was trained on `trained` recent samples. `accuracy`, `latency_s`, `exits` and `samples` of
    its manifest are measured on recent samples that were held back; the version before had
    `accuracy_before` and `latency_s_before` on them. If nothing was trained, samples of the build
    are included. `class_mix` (classes,) are the shares of answers that it is set for.
    """

    number: int
    before: int
    at_s: float
    reason: str
    trained: int
    accuracy_before: float
    latency_s_before: float
    class_mix: tuple[Annotated[float, msgspec.Meta(gt=0)], ...] = ()


class CompiledSpan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Segments `first` to `last`, compiled for a hidden output of `shape`, that of one row."""

    first: int
    last: int
    shape: Sizes
    file: str
    file_sha256: str


class Compiled(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Spans compiled ahead of time for a `device`; `machine` hashes what they depend on."""

    spans: tuple[CompiledSpan, ...]
    machine: str
    device: str
    took_s: float


class Measured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Mean seconds per row over `rows` validation samples, run one by one and in turn.

    `module_s` is for the module, `folded_s` with batch norms folded (which caches include),
    `cached_s` with caches, `compiled_s` for the whole module compiled, if segments are.
    """

    rows: int
    module_s: float
    folded_s: float
    cached_s: float
    compiled_s: float | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `manifest.json`.

    `blocks` names the segments, `segment_s` is the time of each for one row on the `device` kind,
    if known. `lookups` says how caches were timed and chosen: inline or beside the model.
    `latency_s` and `exits` (share of samples that leave after each segment) are for `samples`
    validation samples, `accuracy` (relative to the base model) for those that did not make the
    choice. `latency_s` is computed from segment and lookup times; `measured` holds what a row took
    after the build. Without `memory_budget_bytes`, memory is unbounded; without `most_delay` (a
    share of the model's time), so is the time of inline lookups for a sample that misses
    everywhere.
    """

    schema_version: int = SCHEMA_VERSION
    weights_sha256: str
    blocks: tuple[str, ...]
    blocks_named: bool
    logits: bool
    classes: Size
    target: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    confidence: float | None
    lower_bound: float | None
    samples: int
    lookups: Lookups = "inline"
    device: str | None = None
    segment_s: tuple[float, ...]
    latency_s: float
    accuracy: float
    exits: tuple[float, ...]
    variants: tuple[Variant, ...]
    choices: tuple[Choice, ...]
    memory_budget_bytes: float | None = None
    most_delay: Annotated[float, msgspec.Meta(ge=0)] | None = None
    file: str = ""
    file_sha256: str = ""
    adapted: Adapted | None = None
    measured: Measured | None = None
    compiled: Compiled | None = None

    def __post_init__(self) -> None:
        told = f"schema_version is {self.schema_version}, needs {SCHEMA_VERSION}"
        require(self.schema_version == SCHEMA_VERSION, told)
        layers = [entry.layer for entry in self.chosen]
        require(
            layers == sorted(set(layers)) and all(0 <= layer < len(self.blocks) - 1 for layer in layers),
            f"chosen caches are after layers {layers}",
        )
        spare = [entry.layer for entry in self.variants if entry.spare]
        apart = len(set(spare)) == len(spare) and not set(spare) & set(layers)
        require(apart and all(0 <= layer < len(self.blocks) - 1 for layer in spare), f"spare caches after {spare}")

    @property
    def chosen(self) -> tuple[Variant, ...]:
        return tuple(entry for entry in self.variants if entry.chosen)

    @property
    def trained(self) -> tuple[Variant, ...]:
        """The caches whose weights are in the file, in use or spare, in the order of layers."""
        return tuple(sorted((e for e in self.variants if e.chosen or e.spare), key=lambda entry: entry.layer))

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of agreement on new samples."""
        return wilson_interval(self.accuracy, self.samples)

    @property
    def samples_for_a_point(self) -> int:
        """Samples to build from so that this interval begins at most 0.01 below the target."""
        counted = next(n for n in count(10, 10) if wilson_interval(self.target, n)[0] >= self.target - 0.01)
        return math.ceil(counted / CHECKED_SHARE)

    @property
    def base_s(self) -> float:
        return sum(self.segment_s)


def read_manifest(folder: PathLike) -> Manifest:
    """Read the manifest in `folder`; raises `InvalidInput` with file, field and remedy."""
    path = Path(folder) / MANIFEST
    data = read_bytes(path, remedy="make it with `gearshift caches build`")
    return decode_json(data, Manifest, where=str(path), remedy="build the learned caches anew")


def must_agree(target: float, samples: int) -> float:
    """Return the least agreement that makes a target `LIKELY`; 1 if none does."""
    wrong = 0
    while share_bound(wrong + 1, samples, LIKELY) >= target:
        wrong += 1
    return 1 - wrong / samples


def samples_to_judge(target: float) -> int:
    """Return the fewest validation samples that, all agreeing, make a target below 1 `LIKELY`."""
    return math.ceil(math.log(1 - LIKELY) / math.log(target))
