"""Lookups beside the base model in a process that reads hidden outputs from shared memory."""

import logging
import os
import signal
import socket
import subprocess
import sys
import weakref
from array import array
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from mmap import mmap
from select import POLLIN, poll
from threading import Lock
from time import monotonic
from typing import NamedTuple

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gearshift.caches.network.learned_cache import LearnedCache, state_of
from gearshift.caches.running import lookup_server
from gearshift.caches.running.concurrent_lookups import ConcurrentLookups, LookupResult, LookupThread, divided_cores
from gearshift.caches.running.lookup_server import FIRST_BYTE, MOST_BYTES, MOST_MESSAGE_BYTES
from gearshift.errors import ModelFailed
from gearshift.support.extras import load_extra
from gearshift.support.files import memory_file

LONGEST_START_S = 60.0
LONGEST_END_S = 5.0
LONGEST_LOOKUP_S = 30.0
ALIGNED = 64

log = logging.getLogger(__name__)


def start_lookups(device: torch.device, cores: int, caches: Collection[LearnedCache]) -> ConcurrentLookups | None:
    """Start lookups into `caches` beside their model, on the last `cores` of the processors.

    They run in a thread on CUDA and for a user's own predictors, whose code exists only here,
    otherwise in a process. Returns None, with a warning, if no core would be left for the model or
    the process does not start.
    """
    own = divided_cores(cores)
    if device.type == "cuda":
        return LookupThread(frozenset(), device)
    if own is None:
        log.warning("learned caches are looked up in line, as the model would be left without a core")
        return None
    if any(cache.made_as is None for cache in caches):
        return LookupThread(own.lookups, device)
    try:
        process = LookupProcess(own.lookups)
    except OSError as error:
        why = f"cannot be started ({error.strerror})"
    else:
        if not process.why_ended:
            return process
        why = process.why_ended
    log.warning("learned caches are looked up in line, as their process %s", why)
    return None


def fits(beside: ConcurrentLookups, caches: Collection[LearnedCache]) -> bool:
    return isinstance(beside, LookupThread) or all(cache.made_as is not None for cache in caches)


class LookupProcess:
    """A process on `cores` that looks into caches in the order asked, one batch at a time.

    It ends with this object and with this process. If it ends earlier, `why_ended` says how; then
    no batch begins, and the current one finds nothing more. It is killed if it makes no progress
    for `longest_s` while a result is awaited or its socket is full, and if it is too far behind
    when caches change.

    Raises `OSError` if it cannot be started.
    """

    def __init__(self, cores: frozenset[int], *, longest_s: float = LONGEST_LOOKUP_S) -> None:
        self.why_ended = ""
        self._longest_s = longest_s
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, _memory("hidden") as to_look, _memory("answers") as looked:
                hidden, self.answers = mmap(to_look, MOST_BYTES), mmap(looked, MOST_BYTES)
                self.process = _spawn(theirs.fileno(), (to_look, looked), cores)
        except BaseException:
            self._sock.close()
            raise
        self._end = weakref.finalize(self, _ended, self._sock, self.process)
        self.floats = torch.frombuffer(hidden, dtype=torch.float32)
        self._first_wanted = np.frombuffer(hidden, np.int64, 1)
        self.last_answered = np.frombuffer(self.answers, np.int64, 1)
        self._decoder = msgspec.msgpack.Decoder(lookup_server.Told)
        self._busy = Lock()
        self._asked = 0
        self._done_when_full = -1
        self._full_since_s = 0.0
        self.classes = 0
        self.caches: Mapping[int, LearnedCache] = {}
        if not self._hears(LONGEST_START_S):
            self._lost(f"did not begin within {LONGEST_START_S:g} s")
        self.heard()

    def close(self) -> None:
        self._end()

    def use(self, caches: Mapping[int, LearnedCache]) -> None:
        made = [(layer, cache.made_as) for layer, cache in caches.items() if cache.made_as is not None]
        assert len(made) == len(caches)
        self.caches = caches
        self.classes = next((cache.classes for cache in caches.values()), 0)
        data = load_extra("safetensors.torch", extra="torch", where="learned caches").save(state_of(caches))
        entries = tuple(lookup_server.ToLook(layer=layer, variant=as_[0], shape=as_[1]) for layer, as_ in made)
        try:
            with open(memory_file("weights"), "wb") as file:
                file.write(data)
                file.flush()
                self.tell(lookup_server.Use(caches=entries, classes=self.classes), file.fileno())
        except OSError as error:
            self._lost(f"cannot be given other caches ({error.strerror})")

    def begin(self) -> "ProcessBatch | None":
        """Begin a batch; None while another one is under way, or if the process has ended."""
        if self.why_ended or not self._busy.acquire(blocking=False):
            return None
        while self.heard() is not None:
            pass  # results that were given up
        if self.why_ended:
            self._busy.release()
            return None
        return ProcessBatch(self)

    def end(self) -> None:
        self._first_wanted[0] = self._asked
        self._busy.release()

    def number(self) -> int:
        self._asked += 1
        return self._asked - 1

    def tell(self, message: lookup_server.Asked, *files: int) -> bool:
        """Send without waiting; False if the process has ended or is far behind."""
        data = msgspec.msgpack.encode(message)
        descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", files))] if files else []
        try:
            self._sock.sendmsg([data], descriptors, socket.MSG_DONTWAIT)  # `send_fds` drops flags
        except BlockingIOError:
            if isinstance(message, lookup_server.Use) or self._stands_still():
                self._lost("is far behind")
            return False
        except OSError:
            self.heard()
            return False
        return True

    def heard(self, *, wait: bool = False) -> lookup_server.Ready | lookup_server.Found | lookup_server.Failed | None:
        """Return its next message, if any; `wait` at most `longest_s` for one."""
        if self.why_ended:
            return None
        if wait and not self._hears(self._longest_s):
            self._lost(f"has said nothing for {self._longest_s:g} s")
            return None
        try:
            data = self._sock.recv(MOST_MESSAGE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        told: lookup_server.Told = self._decoder.decode(data) if data else lookup_server.Ended(why="has ended")
        if isinstance(told, lookup_server.Ended):
            self._lost(told.why)
            return None
        return told

    def _hears(self, longest_s: float) -> bool:
        waiting = poll()
        waiting.register(self._sock, POLLIN)
        return bool(waiting.poll(1000 * longest_s))

    def _stands_still(self) -> bool:
        now_s, done = monotonic(), int(self.last_answered[0])
        if done != self._done_when_full:
            self._done_when_full, self._full_since_s = done, now_s
        return now_s - self._full_since_s > self._longest_s

    def _lost(self, why: str) -> None:
        self.why_ended = self.why_ended or why
        self._end()


class _Asked(NamedTuple):
    number: int
    layer: int
    rows: NDArray[np.int64]
    answer_begins: int


class ProcessBatch:
    """The lookups of one batch.

    Once a lookup cannot be sent, because memory is full or the process far behind, none of the
    following is: a row must not leave by a later cache than the first that hits it.
    """

    def __init__(self, process: LookupProcess) -> None:
        self._process = process
        self._asked = deque[_Asked]()
        self._hidden_end = self._answers_end = FIRST_BYTE
        self._full = False

    @property
    def pending(self) -> bool:
        return bool(self._asked) and not self._process.why_ended

    def ask(self, layer: int, hidden: Tensor, rows: NDArray[np.int64]) -> None:
        process, begins, answer_begins = self._process, self._hidden_end, self._answers_end
        self._hidden_end += _aligned(4 * hidden.numel())
        self._answers_end += _aligned(lookup_server.answer_bytes(len(hidden), process.classes))
        self._full = self._full or max(self._hidden_end, self._answers_end) > MOST_BYTES
        if self._full:
            return
        process.floats[begins // 4 : begins // 4 + hidden.numel()].view(hidden.shape).copy_(hidden)
        one = _Asked(process.number(), layer, rows, answer_begins)
        self._full = not process.tell(
            lookup_server.Ask(
                number=one.number, layer=layer, shape=tuple(hidden.shape), begins=begins, answer_begins=answer_begins
            )
        )
        if not self._full:
            self._asked.append(one)

    def found(self, *, wait: bool = False) -> LookupResult | None:
        """Return the oldest result not taken yet, if done; raises `ModelFailed` if it failed."""
        if not self._asked or not (wait or self._process.last_answered[0] >= self._asked[0].number):
            return None  # saves a system call
        while self._asked and (told := self._process.heard(wait=wait)) is not None:
            one = self._asked[0]
            if isinstance(told, lookup_server.Ready) or told.number != one.number:
                continue  # from an earlier batch
            self._asked.popleft()
            if isinstance(told, lookup_server.Failed):
                raise ModelFailed(f"a lookup of learned caches failed: {told.why}")
            self._process.caches[one.layer].not_finite += told.not_finite
            memory, classes = self._process.answers, self._process.classes
            probabilities, hits = lookup_server.answer_in(memory, one.answer_begins, len(one.rows), classes)
            return LookupResult(one.rows, probabilities.copy(), hits.copy())
        return None

    def end(self) -> None:
        self._process.end()


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


@contextmanager
def _memory(name: str) -> Iterator[int]:
    file = memory_file(name)
    try:
        os.ftruncate(file, MOST_BYTES)
        yield file
    finally:
        os.close(file)


def _spawn(fd: int, files: Sequence[int], cores: frozenset[int]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "gearshift.caches.running.lookup_server", "--fd", str(fd)]
    command += ["--hidden", str(files[0]), "--answers", str(files[1]), "--cores", ",".join(map(str, sorted(cores)))]
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited: Ctrl-C is for this process
    try:
        return subprocess.Popen(
            command,
            env={**os.environ, "OMP_NUM_THREADS": str(len(cores))},
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=(fd, *files),
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)


def _ended(sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Kill it: it holds no state worth saving."""
    sock.close()
    process.kill()
    process.wait(LONGEST_END_S)
