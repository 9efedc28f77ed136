"""The worker: a separate process that loads the models of one device set and runs their batches.

`python -m gearshift.runtime.workers.worker --fd N --cores 1,3`, started by `runtime/worker_process.py`. It
ends when its socket does, and the kernel kills it with the thread that started it: no worker
outlives its router.
"""

import argparse
import contextlib
import ctypes
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import GearshiftError, ModelFailed
from gearshift.hardware import is_cuda
from gearshift.model import DATATYPES, Arrays, Predicted, TensorSpec
from gearshift.observability.logs import SELDOM, Form, Level, LogSettings, logging_to_stderr
from gearshift.runtime.actuators.affinity import AffinityActuator
from gearshift.runtime.actuators.cgroup import CgroupActuator
from gearshift.runtime.wire.messages import (
    Adopt,
    Adopted,
    Done,
    DonePart,
    Load,
    Loaded,
    LoadFailed,
    Ping,
    Pong,
    Release,
    ReplicaToLoad,
    Run,
    RunPart,
    SetThreads,
    Stop,
    TensorHeader,
)
from gearshift.runtime.wire.transport import BlockingConnection, EndOfStream, pack_tensors, shortened, unpack_tensors
from gearshift.runtime.workers.inference_threads import InferenceThreads
from gearshift.support.kept_memory import keep_freed_memory
from gearshift.support.processors import pin
from gearshift.v2.packing import Buffer

PR_SET_PDEATHSIG = 1
LEAST_WARM_UPS = 2
TELL_WARM_UP_S = 5.0
OOM_SCORE, MOST_OOM_SCORE, SOONER = Path("/proc/self/oom_score_adj"), 1000, 500
"""The score counts thousandths of memory: a worker is killed before a router with half of it."""
ORDERS = SetThreads, Release
"""Messages that may overtake a queued batch and set its core count."""

log = logging.getLogger("gearshift.runtime.workers.worker")  # this module runs as `__main__`


class RunnableModel(Protocol):
    """A loaded model (`gearshift.models.loading`)."""

    def run(self, inputs: Arrays) -> Predicted:
        """Outputs and certainty of n rows; raises `ModelFailed`."""
        ...


@runtime_checkable
class StoppingModel(Protocol):
    """A loaded model whose rows leave after one of several segments (`segmented_model.py`)."""

    @property
    def segments(self) -> int: ...

    def exits(self, inputs: Arrays) -> Iterator[tuple[NDArray[np.int64], Predicted]]:
        """Row numbers that leave, with outputs and certainty, as they do; raises `ModelFailed`."""
        ...

    def through(self, inputs: Arrays) -> tuple[Predicted, Sequence[float]]:
        """Run all rows to the end, with seconds per segment; raises `ModelFailed`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A loaded replica: its model, by name, and the CUDA stream in which all its work runs."""

    name: str
    model: RunnableModel
    stream: AbstractContextManager[Any]


Send = Callable[[Done, Sequence[Buffer]], None]
FAILED = "model {!r} failed on %d of %d samples of a batch; the first failure: %s"
"""The model's name is part of the format, not an argument, so that log limits apply per model."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="gearshift.runtime.workers.worker")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--cores", default="", help="processors to run on, by number")
    parser.add_argument("--parent", type=int, required=True, help="process that started this one")
    parser.add_argument("--log-level", choices=get_args(Level), default="info")
    parser.add_argument("--log-format", choices=get_args(Form), default="text")
    arguments = parser.parse_args()
    os.set_inheritable(arguments.fd, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not die_with_parent(arguments.parent):
        return 0
    be_killed_first()
    if arguments.cores:
        pin({int(core) for core in arguments.cores.split(",")})
    logs = LogSettings(arguments.log_level, arguments.log_format)
    with socket.socket(fileno=arguments.fd) as sock, logging_to_stderr(logs, process="worker"):
        try:
            return main_loop(BlockingConnection(sock))
        except (EndOfStream, OSError):
            return 0


def die_with_parent(parent: int) -> bool:
    """Have the kernel kill this process when its parent ends (Linux); False if it already has."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    return os.getppid() == parent


def be_killed_first() -> None:
    """So that out of memory it is killed before its parent, which can start another."""
    with contextlib.suppress(OSError, ValueError):
        score = int(OOM_SCORE.read_text())
        OOM_SCORE.write_text(str(min(score + SOONER, MOST_OOM_SCORE)))


def main_loop(connection: BlockingConnection) -> int:
    """Return 1 if a model cannot be loaded; raises `EndOfStream` or `OSError` if the peer ends."""
    replicas: dict[int, Held] = {}
    threads = InferenceThreads(())
    while True:
        message, body = connection.receive()
        match message:
            case Load(adaptation=settings) if settings is not None:
                from gearshift.runtime.workers.attending import attend

                return attend(message, connection)
            case Load():
                keep_freed_memory()
                try:
                    load_all(message, replicas, connection)
                except ModelFailed:
                    return 1
                connection.awake_s = message.awake_s
                threads = InferenceThreads(message.thread_counts)
                for held in replicas.values():
                    threads.add(getattr(held.model, "model", None))
            case SetThreads() | Release():
                obey(message, threads, connection)
            case Run():
                for order in connection.take_arrived(ORDERS):  # sent after the batch, but for it
                    obey(order, threads, connection)
                threads.follow()
                held = replicas[message.replica]
                with held.stream:
                    run_batch(held.name, held.model, message, body, connection.send)
            case Adopt():
                held = replicas[message.replica]
                with held.stream:
                    adopted = adopt(held.model, message, body)
                connection.send(adopted)
            case Ping():
                connection.send(Pong())
            case Stop():
                return 0


def obey(order: SetThreads | Release, threads: InferenceThreads, connection: BlockingConnection) -> None:
    """Set the next batch's cores; later actuators report those that cannot be released."""
    if isinstance(order, SetThreads):
        connection.send(threads.ask(order.threads))
        return
    AffinityActuator(os.getpid(), order.processors).apply(len(order.processors))
    if order.group:
        with contextlib.suppress(GearshiftError, OSError, ValueError):
            CgroupActuator(Path(order.group)).apply(order.cores)


# Loading -------------------------------------------------------------------------------------------------------------


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
    from gearshift.models.config import read_project
    from gearshift.models.declared_outputs import DeclaredOutputs
    from gearshift.models.loaded_from import files_of, files_read
    from gearshift.models.loading import load_model
    from gearshift.models.torch_module import own_stream
    from gearshift.runtime.remote.models import is_remote_model, open_remote

    path, device_kind = Path(message.project), message.device_kind
    memory_before = held_bytes(device_kind)
    begun = time.perf_counter()
    project = read_project(path)
    failure, cold_sizes, files, classes = "", 0, dict[str, str](), tuple[str, ...]()
    if is_remote_model(project, replica.model):  # no warm-up, because asking it may cost money
        remote = open_remote(project, path.parent, replica.model, profiling=message.profiling)
        declared = DeclaredOutputs(message.outputs)
        held = Held(replica.model, replace(remote, declared=declared), nullcontext())
    else:
        if message.profiling:
            with files_read() as opened:
                model = load_model(project, path.parent, replica.model, device_kind=device_kind)
            files = files_of(project, path.parent, replica.model, sorted(opened))
        else:
            model = load_model(project, path.parent, replica.model, device_kind=device_kind)
        classes = model.classes
        declared = DeclaredOutputs(message.outputs, classes)
        held = Held(replica.model, replace(model, declared=declared), own_stream(device_kind))
        with held.stream:
            longest_s = share * (end_s - time.perf_counter())
            failure, cold_sizes = warm_up(replica, held.model, message.inputs, longest_s=longest_s)
    load_s = time.perf_counter() - begun
    grown = max(0, held_bytes(device_kind, peak=True) - memory_before)
    return held, Loaded(
        replica=replica.replica,
        load_s=load_s,
        memory_bytes=grown,
        warm_up_failure=failure,
        cold_sizes=cold_sizes,
        segments=held.model.segments if isinstance(held.model, StoppingModel) else 1,
        classes=classes,
        files=files,
    )


def warm_up(
    replica: ReplicaToLoad, model: RunnableModel, inputs: Sequence[TensorSpec], *, longest_s: float
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


def zeros(spec: TensorSpec, rows: int) -> NDArray[Any]:
    shape = (rows, *(1 if dimension == -1 else dimension for dimension in spec.shape[1:]))
    if spec.datatype == "BYTES":
        return np.full(shape, "", dtype=object)
    return np.zeros(shape, dtype=DATATYPES[spec.datatype])


def held_bytes(device_kind: str, *, peak: bool = False) -> int:
    """Bytes of device memory held: resident memory, or tensors on CUDA (`peak`: their maximum).

    For child processes, as for cache lookups, only memory that they do not share counts.
    """
    if is_cuda(device_kind):
        from gearshift.models.torch_module import cuda_bytes

        return cuda_bytes(peak=peak)
    import psutil

    process = psutil.Process()
    held = int(process.memory_info().rss)
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it may have ended meanwhile
            held += int(child.memory_full_info().uss)
    return held


def adopt(model: RunnableModel, message: Adopt, weights: memoryview) -> Adopted:
    """Use another version of learned caches; on failure the model stays as it is."""
    own: Any = getattr(model, "model", None)
    if not hasattr(own, "adopt"):
        return Adopted(replica=message.replica, problem="the model has no learned caches")
    try:
        version = own.adopt(message.manifest, bytes(weights), message.off)
    except Exception as error:  # noqa: BLE001  user code may raise anything
        return Adopted(replica=message.replica, problem=shortened(f"{type(error).__name__}: {error}"))
    return Adopted(replica=message.replica, version=version)


# Running -------------------------------------------------------------------------------------------------------------


def run_batch(name: str, model: RunnableModel, message: Run, body: memoryview, send: Send) -> None:
    """Run the batch and send its `Done`, after partial ones for rows that leave early."""
    attempt = Attempt(name, model, message, send)
    offset = 0
    for part in message.parts:
        attempt.run(unpack_tensors(part.tensors, body, offset), part.rows)
        offset += part_bytes(part)
    if attempt.first_failure:
        samples = sum(len(part.rows) for part in message.parts)
        silent = len(attempt.unanswered) - len(attempt.unusable) == samples  # so will later batches
        told, failed = FAILED.format(name.replace("%", "%%")), len(attempt.failed)
        log.warning(told, failed, samples, attempt.first_failure, extra=SELDOM if silent else None)
    attempt.tell()


def part_bytes(part: RunPart | DonePart) -> int:
    return sum(tensor.size_bytes for tensor in part.tensors)


class Attempt:
    """The results of a batch: answers, failed rows, and the time in the model.

    A model may write into its input arrays and may reuse its output arrays: rows that run again
    get their original values, and earlier answers do not change.
    """

    def __init__(self, name: str, model: RunnableModel, message: Run, send: Send) -> None:
        self._name, self._model, self._send = name, model, send
        self._batch, self._through = message.batch, message.through
        self._left = sum(len(part.rows) for part in message.parts)
        self._not_finite_before, self._waited_before_s = not_finite(model), waited_s(model)
        self.parts: list[DonePart] = []
        self.buffers: list[Buffer] = []
        self.failed: list[int] = []
        self.unanswered: list[int] = []
        self.unusable: list[int] = []
        self.first_failure = ""
        self.run_s = 0.0
        self.segment_s: tuple[float, ...] = ()

    def tell(self, *, more: bool = False) -> None:
        waited = waited_s(self._model) - self._waited_before_s
        done = Done(
            batch=self._batch,
            run_s=self.run_s - waited,
            parts=tuple(self.parts),
            failed=() if more else tuple(self.failed),
            unanswered=() if more else tuple(self.unanswered),
            unusable=() if more else tuple(self.unusable),
            waited_s=waited,
            first_failure="" if more else self.first_failure,
            more=more,
            segment_s=self.segment_s,
            not_finite=0 if more else not_finite(self._model) - self._not_finite_before,
        )
        self._send(done, self.buffers)
        self.parts, self.buffers = [], []

    def run(self, inputs: Arrays, rows: Sequence[int]) -> None:
        """Run `rows`; a failing batch is split in halves until each failing sample is alone."""
        self.buffers = [bytes(buffer) for buffer in self.buffers]
        as_they_came = copied(inputs) if len(rows) > 1 else inputs  # a single row never runs again
        if isinstance(self._model, StoppingModel) and not self._through:
            self._run_by_exit(self._model, inputs, as_they_came, rows)
            return
        try:
            predicted = self._timed(inputs, len(rows))
            self._take(predicted, rows)
        except Exception as error:  # noqa: BLE001  user code may raise anything
            self._fail(error, as_they_came, rows)

    def _run_by_exit(self, model: StoppingModel, inputs: Arrays, as_they_came: Arrays, rows: Sequence[int]) -> None:
        """Run `rows`; send those that leave early at once. After a failure, the rest run again."""
        stay = np.ones(len(rows), dtype=bool)
        begun = time.perf_counter()
        try:
            for leaving, predicted in model.exits(inputs):
                self.run_s += time.perf_counter() - begun
                self._take(predicted, [rows[i] for i in leaving])
                stay[leaving] = False
                if self._left > 0 and self.parts:
                    self.tell(more=True)
                begun = time.perf_counter()
        except Exception as error:  # noqa: BLE001  user code may raise anything
            rest = np.flatnonzero(stay).tolist()
            self._fail(error, {name: array[rest] for name, array in as_they_came.items()}, [rows[i] for i in rest])

    def _take(self, predicted: Predicted, rows: Sequence[int]) -> None:
        """Keep the answers to `rows`; rows without a certainty have failed."""
        certainty, headers, buffers = packed(predicted)
        unknown = np.isnan(certainty)
        if unknown.any():
            why = shortened(predicted.failure) or "the certainty is not a number"
            self.first_failure = self.first_failure or why
            self._keep_known(predicted, rows, unknown)
        else:
            self._keep(rows, headers, buffers, predicted.exit_segment)
        self._left -= len(rows)

    def _fail(self, error: Exception, inputs: Arrays, rows: Sequence[int]) -> None:
        self.first_failure = self.first_failure or describe(self._name, error)
        self._split(inputs, rows)

    def _timed(self, inputs: Arrays, rows: int) -> Predicted:
        begun = time.perf_counter()
        try:
            if self._through and isinstance(self._model, StoppingModel):
                predicted, seconds = self._model.through(inputs)
                self.segment_s = tuple(seconds)
            else:
                predicted = self._model.run(inputs)
        finally:
            self.run_s += time.perf_counter() - begun
        check_rows(self._name, predicted, rows)
        return predicted

    def _split(self, inputs: Arrays, rows: Sequence[int]) -> None:
        if len(rows) == 1:
            self.failed.append(rows[0])
            self._left -= 1
            return
        middle = len(rows) // 2
        for half in (slice(0, middle), slice(middle, len(rows))):
            self.run({name: array[half] for name, array in inputs.items()}, rows[half])

    def _keep_known(self, predicted: Predicted, rows: Sequence[int], unknown: NDArray[Any]) -> None:
        without_certainty = [row for row, without in zip(rows, unknown.tolist(), strict=True) if without]
        self.failed += without_certainty
        if predicted.failure:
            self.unanswered += without_certainty
        if predicted.unusable is not None:
            marked = np.asarray(predicted.unusable) & unknown
            self.unusable += [row for row, one in zip(rows, marked.tolist(), strict=True) if one]
        if unknown.all():
            return
        outputs = {name: np.asarray(array)[~unknown] for name, array in predicted.outputs.items()}
        exits = None if predicted.exit_segment is None else predicted.exit_segment[~unknown]
        _, headers, buffers = packed(Predicted(outputs, np.asarray(predicted.certainty)[~unknown]))
        known = [row for row, without in zip(rows, unknown.tolist(), strict=True) if not without]
        self._keep(known, headers, buffers, exits)

    def _keep(
        self,
        rows: Sequence[int],
        headers: tuple[TensorHeader, ...],
        buffers: list[Buffer],
        exits: NDArray[np.int64] | None,
    ) -> None:
        left = () if exits is None else tuple(exits.tolist())
        self.parts.append(DonePart(rows=tuple(rows), tensors=headers, exits=left))
        self.buffers += buffers


def copied(arrays: Arrays) -> Arrays:
    """Copies of the arrays, at about 50 us per MB."""
    return {name: array.copy() for name, array in arrays.items()}


def not_finite(model: RunnableModel) -> int:
    return max(0, int(getattr(getattr(model, "model", None), "not_finite", 0)))


def waited_s(model: RunnableModel) -> float:
    """Seconds that a remote model has spent waiting to ask again, while profiling."""
    return float(getattr(getattr(model, "model", None), "waited_s", 0.0))


def check_rows(name: str, predicted: Predicted, rows: int) -> None:
    arrays = {**predicted.outputs, "the certainty": predicted.certainty}
    for output, array in arrays.items():
        shape = np.shape(array)
        if len(shape) == 0 or shape[0] != rows:
            raise ModelFailed(f"model {name!r} answered shape {list(shape)} as {output} for {rows} samples")
    if np.ndim(predicted.certainty) != 1:
        raise ModelFailed(f"model {name!r} answered a certainty of {np.ndim(predicted.certainty)} dimensions, needs 1")


def packed(predicted: Predicted) -> tuple[NDArray[Any], tuple[TensorHeader, ...], list[Buffer]]:
    """The certainty, and headers and buffers of certainty and outputs, certainty first."""
    certainty = np.asarray(predicted.certainty, dtype=np.float64)
    outputs = {name: np.asarray(array) for name, array in predicted.outputs.items()}
    first_headers, first_buffers = pack_tensors({"certainty": certainty})
    headers, buffers = pack_tensors(outputs)
    return certainty, first_headers + headers, first_buffers + buffers


def describe(name: str, error: BaseException) -> str:
    if isinstance(error, GearshiftError):
        return shortened(str(error).removeprefix(f"model {name!r} "))
    return shortened(f"raised {type(error).__name__}: {error}")


if __name__ == "__main__":
    sys.exit(main())
