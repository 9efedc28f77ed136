"""The router's side of one worker: its process, its socket, and its end."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence

from gearshift.errors import ModelFailed, WorkerDied, require
from gearshift.observability.logs import settings_in_force
from gearshift.runtime.health import Health
from gearshift.runtime.messages import Done, Load, Loaded, LoadFailed, Message, Ping, Pong, Run, Stop
from gearshift.runtime.transport import Buffer, FrameProtocol

THREAD_SETTINGS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)
CUDA_SETTING = "CUDA_VISIBLE_DEVICES"
SOCKET_BUFFER_BYTES = 4 << 20
TERMINATE_WAIT_S = 0.5
KILL_WAIT_S = 5.0

OnDone = Callable[[Done, memoryview], None]
OnEnd = Callable[[str], None]


class WorkerProcess:
    """A worker pinned to `cores`, alive from `start` until it has ended by itself or by `stop` or `kill`.

    `cuda` are the CUDA devices it alone sees, by their place among those that this process sees.
    `on_done` gets each finished batch.  `on_end` is called once when the process is gone, unless it was stopped, with
    how it ended (words that follow "the worker").  With `probe_s` it is looked after (`Health`), and killed when stuck.
    The kernel kills the worker when the *thread* that called `start` ends (PR_SET_PDEATHSIG).
    """

    def __init__(
        self,
        *,
        cores: frozenset[int],
        on_done: OnDone,
        on_end: OnEnd,
        cuda: Sequence[int] = (),
        probe_s: float | None = None,
    ) -> None:
        self._cores, self._cuda, self._on_done, self._on_end = cores, cuda, on_done, on_end
        self._probe_s = probe_s
        self._health: Health | None = None
        self._killed_for = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._protocol: FrameProtocol | None = None
        self._pidfd = -1
        self._serving = False
        self._stopping = False
        self._gone = asyncio.Event()
        self.not_loaded: list[LoadFailed] = []
        self._loaded: list[Loaded] = []
        self._loading: asyncio.Future[list[Loaded]] | None = None
        self._to_load = 0
        self._keeps_others = False

    @property
    def pid(self) -> int:
        """The process's id, 0 before `start`."""
        return 0 if self._process is None else self._process.pid

    async def start(self, load: Load, *, longest_s: float) -> list[Loaded]:
        """Start the process and have it load; nothing is left running where it cannot.

        Where `load` keeps others, those that cannot be loaded are in `not_loaded`, unless none could.
        Raises `ModelFailed`, `WorkerDied`, or `InvalidInput` for more CUDA devices than there are.
        """
        loop = asyncio.get_running_loop()
        environment = self._environment()
        self._loading, self._to_load = loop.create_future(), len(load.replicas)
        self._keeps_others = load.keep_others
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        _widen(ours)
        _widen(theirs)
        _, self._protocol = await loop.create_unix_connection(
            lambda: FrameProtocol(self._received, self._stream_ended), sock=ours
        )
        with theirs:
            self._process = self._spawn(theirs.fileno(), environment)
        self._pidfd = os.pidfd_open(self._process.pid)
        loop.add_reader(self._pidfd, self._ended)
        self._protocol.send(load)
        try:
            async with asyncio.timeout(longest_s):
                loaded = await self._loading
            if self._gone.is_set():
                raise WorkerDied("a worker ended right after it had loaded its models")
            self._serving = True
            if self._probe_s is not None:
                self._health = Health(loop, probe_s=self._probe_s, ask=self._ask, stuck=self.terminate)
                self._health.start()
            return loaded
        except TimeoutError:
            await self.kill()
            models = ", ".join(repr(replica.model) for replica in load.replicas)
            raise ModelFailed(f"loading {models} took longer than {longest_s:g} s") from None
        except BaseException:
            await self.kill()
            raise

    def run(self, message: Run, buffers: Sequence[Buffer], *, longest_s: float | None = None) -> None:
        """Send a batch; it is lost without a word when the worker is gone, of which `on_end` tells.

        Who holds it for longer than `longest_s` is stuck.
        """
        if self._protocol is not None:
            self._protocol.send(message, buffers)
            if self._health is not None:
                self._health.began(longest_s)

    def terminate(self, why: str) -> None:
        """Kill the worker without waiting; `on_end` will tell, with `why`."""
        if not self._gone.is_set():
            self._killed_for = why
            self._signal(signal.SIGKILL)

    async def stop(self, *, longest_s: float) -> None:
        """Ask the worker to end, then make it; returns when it is gone."""
        self._stopping = True
        if self._process is None or self._gone.is_set():
            return
        if self._protocol is not None:
            self._protocol.send(Stop())
        if not await self._is_gone_within(longest_s):
            self._signal(signal.SIGTERM)
            await self._is_gone_within(TERMINATE_WAIT_S)
        await self.kill()

    async def kill(self) -> None:
        """End the worker and all that it started, at once."""
        self._stopping = True
        if self._process is not None and not self._gone.is_set():
            self._signal(signal.SIGKILL)
            await self._is_gone_within(KILL_WAIT_S)

    def _environment(self) -> dict[str, str]:
        settings = dict.fromkeys(THREAD_SETTINGS, str(max(1, len(self._cores))))
        if self._cuda:
            settings[CUDA_SETTING] = visible_cuda(self._cuda, os.environ.get(CUDA_SETTING))
        return {**os.environ, **settings}

    def _spawn(self, fd: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "gearshift.runtime.worker", "--fd", str(fd)]
        command += ["--cores", ",".join(str(core) for core in sorted(self._cores)), "--parent", str(os.getpid())]
        command += settings_in_force().arguments()
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=2,  # what a model prints must not mix with our own standard output
            pass_fds=(fd,),
            start_new_session=True,
        )

    def _received(self, message: Message, body: memoryview) -> None:
        match message:
            case Done():
                if self._health is not None:
                    self._health.ended()
                self._on_done(message, body)
            case Pong():
                if self._health is not None:
                    self._health.answered()
            case Loaded():
                self._loaded.append(message)
                self._end_loading()
            case LoadFailed():
                self.not_loaded.append(message)
                self._end_loading()

    def _end_loading(self) -> None:
        """Once all is known, or enough; where nothing could be loaded, why is told of the first."""
        whole = len(self._loaded) + len(self.not_loaded) == self._to_load
        if self.not_loaded and (not self._keeps_others or (whole and not self._loaded)):
            self._fail_loading(ModelFailed(why_not_loaded(self.not_loaded[0])))
        elif whole and self._loading is not None and not self._loading.done():
            self._loading.set_result(self._loaded)

    def _ask(self) -> None:
        if self._protocol is not None:
            self._protocol.send(Ping())

    def _fail_loading(self, error: Exception) -> None:
        if self._loading is not None and not self._loading.done():
            self._loading.set_exception(error)

    def _stream_ended(self) -> None:
        if not self._stopping and not self._gone.is_set():
            self._signal(signal.SIGKILL)  # it closed its socket, so nothing more will come of it

    def _ended(self) -> None:
        """The process is a zombie: kill what it started (its group still has its id), then reap it."""
        assert self._process is not None
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._signal(signal.SIGKILL)
        status = self._process.wait()
        self._gone.set()
        if self._protocol is not None:
            self._protocol.close()
        if self._health is not None:
            self._health.stop()
        how = how_it_ended(status, self._killed_for)
        if self._loading is not None and not self._loading.done():
            self._fail_loading(WorkerDied(f"a worker {how} while it loaded its models"))
        elif self._serving and not self._stopping:
            self._on_end(how)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                return

    async def _is_gone_within(self, longest_s: float) -> bool:
        try:
            async with asyncio.timeout(longest_s):
                await self._gone.wait()
        except TimeoutError:
            return False
        return True


def why_not_loaded(failed: LoadFailed) -> str:
    """A sentence."""
    return f"model {failed.model!r} cannot be loaded: {failed.reason}"


def how_it_ended(status: int, killed_for: str = "") -> str:
    """What became of a process with this exit status, in words that follow "the worker"."""
    if killed_for:
        return f"was killed ({killed_for})"
    if status >= 0:
        return f"ended with status {status}"
    if status == -signal.SIGKILL:
        return "ended by signal 9 (SIGKILL, as the kernel sends it when memory runs out)"
    return f"ended by signal {-status} ({signal.strsignal(-status)})"


def visible_cuda(places: Sequence[int], seen: str | None) -> str:
    """The value of `CUDA_VISIBLE_DEVICES` for devices at `places` among those `seen` by its present value.

    Raises `InvalidInput` for a place beyond them.
    """
    names = None if seen is None else [name.strip() for name in seen.split(",") if name.strip()]
    if names is None:
        return ",".join(str(place) for place in places)
    require(
        max(places) < len(names),
        f"the plan needs {max(places) + 1} CUDA devices, but {CUDA_SETTING} is {seen!r}",
        remedy="let this process see more devices, or plan for fewer",
    )
    return ",".join(names[place] for place in places)


def _widen(sock: socket.socket) -> None:
    """Larger buffers, as far as the system allows, so that a batch leaves in few writes."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
