"""The manifest of learned caches: which were explored, which were chosen and why, and for which weights."""

import math
from itertools import count
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from gearshift.errors import InvalidInput, require
from gearshift.result import share_bound, wilson_interval
from gearshift.support.files import PathLike, read_bytes

MANIFEST = "manifest.json"
SCHEMA_VERSION = 2
CHECKED_SHARE = 0.2
"""Of the samples that caches are built from: on those agreement is counted."""

LIKELY = 0.9
"""How sure `build` is of the target where no confidence is asked for."""
CLASS_MIX = "class mix"
"""The reason of a version of which no network was trained: they were set for the classes that came."""

Size = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
Sizes = Annotated[tuple[Size, ...], msgspec.Meta(max_length=8)]


class Variant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A variant after a block, judged on samples that it was not trained on.

    `level` is the accuracy of hits that its selector's threshold aims at; `accuracy` that of its hits, relative to the
    base model.  `shape` is that of the hidden output without rows, `lookup_s` for one row.  A `spare` one is kept for
    adaptation and not looked up.
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
    """What one method of composition chose, numbers of variants, and what it comes to on the validation samples.

    `expected_latency_s` assumes that later caches hit all that earlier ones hit.  `gap_s` is how much lower the latency
    might be that the method minimises.
    """

    method: str
    chosen: tuple[int, ...]
    expected_latency_s: float
    latency_s: float
    accuracy: float
    memory_bytes: int
    gap_s: float = 0.0


class Adapted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which version adaptation made, `before` being the one it was made from, when (Unix time), and why then.

    It was trained on `trained` recent samples; `accuracy`, `latency_s`, `exits` and `samples` of its manifest are of
    recent samples that were held back, of which the one before agreed on `accuracy_before` in `latency_s_before`; with
    none trained on, samples of the build are among them.  `class_mix` (classes,) are the shares of answers that it is
    set for.
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
    """Segments `first` to `last` compiled for a hidden output of this `shape`, that of a row with its dimension."""

    first: int
    last: int
    shape: Sizes
    file: str
    file_sha256: str


class Compiled(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Spans compiled ahead of time, in `took_s`, for a kind of `device`; `machine` is a hash of what they depend on."""

    spans: tuple[CompiledSpan, ...]
    machine: str
    device: str
    took_s: float


class Measured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Mean seconds of a row, of `rows` samples that judge, run one by one and in turn.

    `module_s` are of the module, `folded_s` with its batch norms folded, as caches come with, `cached_s` with caches.
    `compiled_s` are of the module compiled whole, where segments are.
    """

    rows: int
    module_s: float
    folded_s: float
    cached_s: float
    compiled_s: float | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `manifest.json`.

    `blocks` names the segments, `segment_s` is how long each takes for one row on that kind of `device`, if it is
    known.  `lookups` are in line or beside the model, as caches were timed and chosen for.  `latency_s` and `exits`
    (share of samples that leave after each segment) are of `samples` validation samples, `accuracy` (relative to the
    base model) of those that did not make the choice.  Without a `memory_budget_bytes` caches may take any memory,
    without a `most_delay` (a share of the model's time) their lookups in line any time of a sample that none answers.
    `latency_s` is reckoned from times of segments and lookups; what the model took when it was built is `measured`.
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
    lookups: Literal["inline", "beside"] = "inline"
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
        """The caches in use, in the order of layers."""
        return tuple(entry for entry in self.variants if entry.chosen)

    @property
    def trained(self) -> tuple[Variant, ...]:
        """The caches whose weights are in the file: those in use and the spare ones, in the order of layers."""
        return tuple(sorted((e for e in self.variants if e.chosen or e.spare), key=lambda entry: entry.layer))

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """Where agreement on new samples may lie: the 95 % Wilson interval of the samples that it was counted on."""
        return wilson_interval(self.accuracy, self.samples)

    @property
    def samples_for_a_point(self) -> int:
        """How many samples to build from for that interval to end at most 0.01 below an agreement on target."""
        counted = next(n for n in count(10, 10) if wilson_interval(self.target, n)[0] >= self.target - 0.01)
        return math.ceil(counted / CHECKED_SHARE)

    @property
    def base_s(self) -> float:
        """How long the base model takes for one row."""
        return sum(self.segment_s)


def read_manifest(folder: PathLike) -> Manifest:
    """The manifest in `folder`; raises `InvalidInput` naming file, field and remedy."""
    path = Path(folder) / MANIFEST
    data = read_bytes(path, remedy="make it with `gearshift caches build`")
    try:
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidInput(str(error), where=str(path), remedy="build the learned caches anew") from error


def must_agree(target: float, samples: int) -> float:
    """The least agreement on so many validation samples that makes a target likely; 1 where none does."""
    wrong = 0
    while share_bound(wrong + 1, samples, LIKELY) >= target:
        wrong += 1
    return 1 - wrong / samples


def samples_to_judge(target: float) -> int:
    """The fewest validation samples that make a target below 1 likely, where none of them is answered otherwise."""
    return math.ceil(math.log(1 - LIKELY) / math.log(target))
