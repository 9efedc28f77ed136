"""Messages between the router's process and a worker, by receiver."""

from typing import Any

import msgspec

from gearshift.model import TensorSpec


class TensorHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tensor of a frame's body; the body has tensors in the order of their headers.

    `text` says that the elements of a BYTES tensor were `str`, so that they are `str` again on the
    other side. If only some were, as when requests of both kinds share a batch, it has one byte
    per element, 1 for `str`, and 2 for None, a missing text.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    size_bytes: int
    text: bool | bytes = False


# To a worker ---------------------------------------------------------------------------------------------------------


class OperatorToLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `gearshift.toml` with the models of an operator, and the operator's tensors.

    From `inputs` warm-up batches of zeros are made; without them none is run. Models' answers are
    converted to `outputs`; without them they pass unchanged.
    """

    project: str
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()


class ReplicaToLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A replica, its model, and the batch sizes to warm up; the first two always run.

    `operator` is the place of the model's operator among those of `Load`.
    """

    replica: int
    model: str
    operator: int = 0
    warm_up_rows: tuple[int, ...] = ()


class Load(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Load replicas of these operators; answered per replica.

    Each answer is `Loaded` or `LoadFailed`. The first `LoadFailed` is the last answer, and the
    worker ends, unless `keep_others` is set. `device_kind` says where PyTorch modules and ONNX
    files go; a worker sees only its own CUDA devices. `warm_up_s` after this message, only the
    warm-up batches that always run still start. `thread_counts` are those that `SetThreads` may
    ask for; sessions of ONNX files are made for each of them. Between batches in quick succession
    the worker stays awake, for `awake_s` at most (`BlockingConnection`). While `profiling`, models
    behind endpoints have more time to ask again. With `adaptation` the process does not run
    batches: it audits and adapts the learned caches of the only replica's model
    (`runtime/workers/cache_attendant.py`), by these settings.
    """

    operators: tuple[OperatorToLoad, ...]
    replicas: tuple[ReplicaToLoad, ...]
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
    """Run a batch on a replica; answered by `Done`. The body holds the parts' tensors in order.

    With `through`, no row leaves learned caches early, and each segment is timed.
    """

    batch: int
    replica: int
    parts: tuple[RunPart, ...]
    through: bool = False


class SetThreads(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Compute with this many threads from the next batch on; answered by `ThreadsSet`."""

    threads: int


class Release(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Run only on `processors` from the next batch on, with `cores` in `group`, if any.

    It is sent before `SetThreads`, and not answered. A worker that is to lose cores releases them
    this way, and actuators enforce the same afterwards. A worker that gains cores gets this
    message too, because an older one might still hold. `group` is a control group's folder.
    """

    processors: tuple[int, ...]
    group: str = ""
    cores: float = 0.0


class Adopt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Use other learned caches, the body, except after segments `off`; answered by `Adopted`."""

    replica: int
    manifest: bytes
    off: tuple[int, ...] = ()


class Drawn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A row that learned caches have answered, to audit or learn from; its tensors are the body.

    It left after `exit_segment`, by the caches of `version`. If `scored`, the last tensor has its
    scores.
    """

    audited: bool
    version: int
    exit_segment: int
    tensors: tuple[TensorHeader, ...]
    scored: bool = False


class Ping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Answer with `Pong`."""


class Challenge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The first frame over TCP: prove knowledge of the run's secret for `nonce` with `Hello`."""

    nonce: bytes


class Stop(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """End."""


# To the router -------------------------------------------------------------------------------------------------------


class Loaded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A replica is loaded and warm; `memory_bytes` is the growth of the worker (`held_bytes`).

    A model with learned caches has several `segments`. On a CUDA device, `memory_bytes` is the
    maximum of PyTorch's tensors beyond those there before, 0 without any. `warm_up_failure` is the
    error of a model that failed on every batch of zeros; `cold_sizes` is the number of batch sizes
    for which there was no time. `classes` name the columns of its scores, if the model names them.
    While profiling, `files` are hashes of the files that the model was loaded from.
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
    """Rows that succeeded; the first tensor is their certainty, the others are the outputs.

    `exits` has the segment after which each row left, for models with learned caches.
    """

    rows: tuple[int, ...]
    tensors: tuple[TensorHeader, ...]
    exits: tuple[int, ...] = ()


class Done(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A batch is done: its rows are in `parts`, or in `failed` if the model failed on that row.

    `unanswered` are the rows of `failed` for which the model said why it has no answer
    (`Predicted.failure`); `unusable` are rows of `failed` that tell nothing of the model: its answer does
    not count, or it refused the row (`RowsRefused`). With `more`,
    these rows have left a model with learned caches early, and others of the batch go on. `run_s`
    is the time in the model, `segment_s` that of each segment of a batch run `through`; neither
    includes `waited_s`, in which a remote model waited to ask again while profiling.
    `first_failure` is the model's first error, for logs and never for clients. `not_finite`
    lookups of learned caches met NaN or infinity, and were misses.
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
    """The worker is alive and has handled all earlier messages."""


class ThreadsSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The number of threads since `since_ns`; if it is not the requested one, `problem` says why.

    The time is of the worker's monotonic clock, which processes of one machine share.
    """

    threads: int
    since_ns: int
    problem: str = ""


class Adopted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A replica uses this version of its learned caches, or the last one if `problem` is set."""

    replica: int
    version: int = 0
    problem: str = ""


class InUse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The version of learned caches to use, except after segments `off`; weights are the body."""

    version: int
    manifest: bytes
    off: tuple[int, ...] = ()


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """An entry for the journal about adaptation and audits."""

    event: str
    facts: dict[str, Any]


class AuditOfLayer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Audited hits of a cache, those that disagree, and bounds of the share that disagrees."""

    segment: int
    audited: int
    disagreed: int
    low: float
    high: float


class Attended(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Counts of adaptation and audits since the process started, and audit results per cache."""

    counts: dict[str, float]
    outcomes: dict[str, int]
    layers: tuple[AuditOfLayer, ...]


class Hello(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The first frame of a worker over TCP: its number in the run, with `proof` of the secret.

    `host` and `pid` are where it runs, `version` is its Gearshift's. `nonce` is a number used
    once, with which the router proves that it belongs to the run.
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
