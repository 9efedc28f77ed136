"""What crosses the socket between the router's process and a worker, by receiver."""

from typing import Any

import msgspec

from gearshift.model import TensorSpec


class TensorHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tensor of a frame's body: tensors follow one another there in the order of their headers.

    `text` says that the elements of a BYTES tensor were `str`, so that they are `str` again on the other side; where
    only some were, as when requests of both kinds share a batch, it has one byte per element, 1 for `str`.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    size_bytes: int
    text: bool | bytes = False


# To a worker ---------------------------------------------------------------------------------------------------------


class ReplicaToLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A replica, the model it is a copy of, and the batch sizes to warm it up with, the first two in any case."""

    replica: int
    model: str
    warm_up_rows: tuple[int, ...] = ()


class Load(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Load these replicas from the `gearshift.toml` at `project`; answered by `Loaded` or `LoadFailed` for each.

    The first `LoadFailed` is the last answer, and the worker ends, unless it is to `keep_others`.

    `device_kind` says where PyTorch modules and ONNX files go; a worker sees no other CUDA devices than its own.

    `inputs` are the operator's tensors, from which warm-up batches of zeros are made; without them none is run.
    `outputs` are those that models' answers are made into; without them they pass as they are.
    From `warm_up_s` after this on, no more begins of a replica but those that run in any case.

    `thread_counts` are those that `SetThreads` may ask for; sessions of ONNX files are made for each of them.

    Between batches that follow one another closely the worker stays awake, `awake_s` at most (`BlockingConnection`).

    Models behind endpoints have more time to ask again while `profiling`.

    With `adaptation` the process does not run batches: it audits and adapts the learned caches of the only replica's
    model (`attending.py`), by these settings.
    """

    project: str
    replicas: tuple[ReplicaToLoad, ...]
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    device_kind: str = "cpu"
    keep_others: bool = False
    warm_up_s: float = 0.0
    thread_counts: tuple[int, ...] = ()
    awake_s: float = 0.0
    profiling: bool = False
    adaptation: dict[str, Any] | None = None


class RunPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows of a batch whose arrays have the same shapes: one call of the model."""

    rows: tuple[int, ...]
    tensors: tuple[TensorHeader, ...]


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Run a batch on a replica; answered by `Done`.  The body holds the parts' tensors one after another.

    With `through` no row leaves a model with learned caches early, and each of its segments is timed.
    """

    batch: int
    replica: int
    parts: tuple[RunPart, ...]
    through: bool = False


class SetThreads(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Compute with so many threads from the next batch on; answered by `ThreadsSet`."""

    threads: int


class Release(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Run on `processors` alone from the next batch on, and in control group `group`, if any, on so many `cores`.

    It is sent before `SetThreads`, and not answered.  A worker that is to lose cores gives them up so, and actuators do
    the same after it; one that has got more is told of all, lest an order from before hold.
    """

    processors: tuple[int, ...]
    group: str = ""
    cores: float = 0.0


class Adopt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Look up another version of a replica's learned caches, whose weights are the body, but not after segments `off`.

    Answered by `Adopted`.
    """

    replica: int
    manifest: bytes
    off: tuple[int, ...] = ()


class Drawn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A row that learned caches have answered, to be audited or learnt from; its tensors are the body.

    It left after `exit_segment`, by the caches of `version`.  The last tensor is what was answered as its scores, if
    `scored`.
    """

    audited: bool
    version: int
    exit_segment: int
    tensors: tuple[TensorHeader, ...]
    scored: bool = False


class Ping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Answer with `Pong`."""


class Challenge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The first frame over TCP: prove with `nonce` that you know the run's secret; answered by `Hello`."""

    nonce: bytes


class Stop(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """End."""


# To the router -------------------------------------------------------------------------------------------------------


class Loaded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A replica is loaded and warm; `memory_bytes` is by how much more memory the worker holds (`held_bytes`).

    A model with learned caches has several `segments`.
    On a CUDA device it is the most that PyTorch's tensors took there beyond what was there before, 0 without any.

    `warm_up_failure` is what the model raised where it failed on every batch of zeros; `cold_sizes` are the batch sizes
    for which there was no time.  `classes` are what the columns of its scores stand for, where it says so.  While
    profiling, `files` are hashes of what the model was loaded from.
    """

    replica: int
    load_s: float
    memory_bytes: int
    warm_up_failure: str = ""
    cold_sizes: int = 0
    segments: int = 1
    classes: tuple[str, ...] = ()
    files: dict[str, str] = {}


class LoadFailed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A replica could not be loaded, and why."""

    replica: int
    model: str
    reason: str


class DonePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows that went well; the first tensor is their certainty, the others are the outputs.

    `exits` says after which segment each row left, where the model has learned caches.
    """

    rows: tuple[int, ...]
    tensors: tuple[TensorHeader, ...]
    exits: tuple[int, ...] = ()


class Done(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A batch is done: its rows are in `parts`, or in `failed` where the model failed on that row alone.

    Of those in `failed`, `unanswered` are the ones of which it said why it has no answer (`Predicted.failure`), and of
    these, `unusable` the ones to which an answer came that does not count.
    Where `more` is set, these rows have left a model with learned caches and others of the batch go on.
    `run_s` is the time in the model, `segment_s` that of each segment of a batch that was to go `through`; `waited_s`,
    in which a remote model waited to ask again while profiling, is in neither.
    `first_failure` says what the model raised first, for logs and never for clients.
    `not_finite` lookups of learned caches met NaN or infinity, and were misses.
    """

    batch: int
    run_s: float
    parts: tuple[DonePart, ...]
    failed: tuple[int, ...] = ()
    unanswered: tuple[int, ...] = ()
    unusable: tuple[int, ...] = ()
    waited_s: float = 0.0
    first_failure: str = ""
    more: bool = False
    segment_s: tuple[float, ...] = ()
    not_finite: int = 0


class Pong(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The worker lives, and has done all that it was told before."""


class ThreadsSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """So many threads compute since `since_ns`; where they are not those asked for, `problem` says why.

    The time is of the worker's monotonic clock, which processes of one machine share.
    """

    threads: int
    since_ns: int
    problem: str = ""


class Adopted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A replica looks up this version of its learned caches; or the one before, where there is a `problem`."""

    replica: int
    version: int = 0
    problem: str = ""


class InUse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The version of learned caches to look up, whose weights are the body, but not after segments `off`."""

    version: int
    manifest: bytes
    off: tuple[int, ...] = ()


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """What the journal is to hold of adaptation and audits."""

    event: str
    facts: dict[str, Any]


class AuditOfLayer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Audited hits of a cache, how many disagree, and bounds of the share that does."""

    segment: int
    audited: int
    disagreed: int
    low: float
    high: float


class Attended(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """What adaptation and audits have done since the process started, by name, and what audits say of each cache."""

    counts: dict[str, float]
    outcomes: dict[str, int]
    layers: tuple[AuditOfLayer, ...]


class Hello(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The first frame of a worker over TCP: which of the run's workers it is, and `proof` that it may say so.

    `host` and `pid` are where it runs, `version` is its Gearshift's.  `nonce` is a number used once, with
    which the router shows that it belongs to the run.
    """

    worker: int
    proof: bytes
    host: str
    pid: int
    version: str
    nonce: bytes = b""


ToWorker = Load | Run | SetThreads | Release | Adopt | Drawn | Ping | Challenge | Stop
ToRouter = Loaded | LoadFailed | Done | ThreadsSet | Adopted | InUse | Event | Attended | Pong | Hello
Message = ToWorker | ToRouter
