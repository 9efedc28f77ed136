"""Loads the replicas of a worker's device set, and warms them up."""

import contextlib
import logging
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gearshift.errors import GearshiftError, ModelFailed
from gearshift.hardware import is_cuda
from gearshift.model import TensorSpec, zeros
from gearshift.models.config import read_project
from gearshift.models.declared_outputs import DeclaredOutputs
from gearshift.models.loaded_from import files_of, files_read
from gearshift.models.loading import load_model
from gearshift.models.torch_module import cuda_bytes, own_stream
from gearshift.models.user_model import EarlyExitModel, UserModel
from gearshift.runtime.remote.models import is_remote_model, open_remote
from gearshift.runtime.wire.messages import Load, Loaded, LoadFailed, ReplicaToLoad
from gearshift.runtime.wire.transport import BlockingConnection, shortened
from gearshift.runtime.workers.batch_run import describe

LEAST_WARM_UPS = 2
TELL_WARM_UP_S = 5.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A loaded replica: its model, by name, and the CUDA stream in which all its work runs."""

    name: str
    model: UserModel
    stream: AbstractContextManager[Any]


def load_all(message: Load, replicas: dict[int, Held], connection: BlockingConnection) -> None:
    """Raises `ModelFailed` for a replica that cannot be loaded, unless `keep_others` is set."""
    end_s = time.perf_counter() + message.warm_up_s
    for number, replica in enumerate(message.replicas):
        try:
            held, loaded = load_one(message, replica, end_s, share=1 / (len(message.replicas) - number))
        except Exception as error:
            reason = str(error) if isinstance(error, GearshiftError) else f"{type(error).__name__}: {error}"
            reason = shortened(reason)
            connection.send(LoadFailed(replica=replica.replica, model=replica.model, reason=reason))
            if message.keep_others:
                continue
            raise ModelFailed(reason) from error
        replicas[replica.replica] = held
        connection.send(loaded)


def load_one(message: Load, replica: ReplicaToLoad, end_s: float, *, share: float) -> tuple[Held, Loaded]:
    """Load and warm up a replica; the warm-up gets `share` of the time until `end_s`."""
    operator, device_kind = message.operators[replica.operator], message.device_kind
    path = Path(operator.project)
    memory_before = held_bytes(device_kind)
    begun = time.perf_counter()
    project = read_project(path)
    if is_remote_model(project, replica.model):  # no warm-up, because asking it may cost money
        model = open_remote(project, path.parent, replica.model, profiling=message.profiling)
        held = Held(replica.model, replace(model, declared=DeclaredOutputs(operator.outputs)), nullcontext())
        failure, cold_sizes, classes, files = "", 0, tuple[str, ...](), dict[str, str]()
    else:
        with files_read() if message.profiling else nullcontext(set[str]()) as opened:
            model = load_model(project, path.parent, replica.model, device_kind=device_kind)
        files = files_of(project, path.parent, replica.model, sorted(opened)) if message.profiling else {}
        classes = model.classes
        declared = DeclaredOutputs(operator.outputs, classes)
        held = Held(replica.model, replace(model, declared=declared), own_stream(device_kind))
        with held.stream:
            longest_s = share * (end_s - time.perf_counter())
            failure, cold_sizes = warm_up(replica, held.model, operator.inputs, longest_s=longest_s)
    return held, Loaded(
        replica=replica.replica,
        load_s=time.perf_counter() - begun,
        memory_bytes=max(0, held_bytes(device_kind, peak=True) - memory_before),
        warm_up_failure=failure,
        cold_sizes=cold_sizes,
        segments=held.model.segments if isinstance(held.model, EarlyExitModel) else 1,
        classes=classes,
        files=files,
    )


def warm_up(
    replica: ReplicaToLoad, model: UserModel, inputs: Sequence[TensorSpec], *, longest_s: float
) -> tuple[str, int]:
    """Run batches of zeros of each size, so that no request pays for one-time work.

    A model may refuse zeros and still be served. Returns the first failure if no batch succeeded
    (else ""), and the number of sizes not run: after `longest_s`, only the first two start.
    """
    failures: list[str] = []
    batches = replica.warm_up_rows if inputs else ()
    begun_s = told_s = time.perf_counter()
    for done, rows in enumerate(batches):
        now_s = time.perf_counter()
        if done >= LEAST_WARM_UPS and len(failures) == done:
            break
        if done >= LEAST_WARM_UPS and now_s - begun_s > longest_s:
            return "", len(batches) - done
        if now_s - told_s > TELL_WARM_UP_S:
            told_s = now_s
            log.info("model %r warms up: %d of %d batch sizes have run", replica.model, done, len(batches))
        try:
            model.run({spec.name: zeros(spec, rows) for spec in inputs})
        except Exception as error:  # noqa: BLE001  user code may raise anything
            failures.append(describe(replica.model, error))
    else:
        done = len(batches)
    return (failures[0] if failures and len(failures) == done else ""), 0


def held_bytes(device_kind: str, *, peak: bool = False) -> int:
    """Bytes of device memory held: resident memory, or tensors on CUDA (`peak`: their maximum).

    For child processes, as for cache lookups, only memory that they do not share counts.
    """
    if is_cuda(device_kind):
        return cuda_bytes(peak=peak)
    import psutil

    process = psutil.Process()
    held = int(process.memory_info().rss)
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it may have ended meanwhile
            held += int(child.memory_full_info().uss)
    return held
