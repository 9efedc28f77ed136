"""The router's side of one local worker: its process, its socket, and its end."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from gearshift.errors import InvalidInput, WorkerDied, require
from gearshift.models.config import Project, read_project
from gearshift.observability.logs import settings_in_force
from gearshift.runtime.wire.messages import Load, Loaded, Message, Stop
from gearshift.runtime.wire.transport import FrameProtocol, widen
from gearshift.runtime.wire.worker_link import SENT, OnDone, OnEnd, OnOther, WorkerLink
from gearshift.support.process_end import ProcessEnd
from gearshift.v2.packing import Buffer

THREAD_SETTINGS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)
CUDA_SETTING = "CUDA_VISIBLE_DEVICES"
TERMINATE_WAIT_S = 0.5
KILL_WAIT_S = 5.0
MOST_UNSENT_BYTES = 64 << 20


class WorkerProcess:
    """A worker pinned to `cores`, alive from `start` until it ends or is stopped or killed.

    `cuda` are the CUDA devices that it alone sees, numbered among those that this process sees.
    `on_done` gets each finished batch. `on_end` is called once when the process is gone, unless it
    was stopped, with the reason (words that follow "the worker"). With `probe_s` it is probed
    (`Health`), and killed when stuck. The kernel kills the worker when the *thread* that called
    `start` ends (PR_SET_PDEATHSIG).
    """

    def __init__(
        self,
        *,
        cores: frozenset[int],
        on_done: OnDone,
        on_end: OnEnd,
        cuda: Sequence[int] = (),
        probe_s: float | None = None,
        on_other: OnOther | None = None,
    ) -> None:
        self._cores, self._cuda, self._on_end = cores, cuda, on_end
        self.link = WorkerLink(on_done=on_done, stuck=self.terminate, probe_s=probe_s, on_other=on_other)
        self._killed_for = ""
        self._protocol: FrameProtocol | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._end: ProcessEnd | None = None
        self._serving = False
        self._stopping = False
        self._gone = asyncio.Event()

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    async def start(self, load: Load, *, longest_s: float) -> list[Loaded]:
        """Start the process and load; on failure nothing is left running.

        If `load` keeps others, failures are in `link.not_loaded`, unless all fail. Raises
        `ModelFailed`, `WorkerDied`, or `InvalidInput` for more CUDA devices than there are.
        """
        loop = asyncio.get_running_loop()
        environment = self._environment(load)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        widen(ours)
        widen(theirs)
        _, protocol = await loop.create_unix_connection(
            lambda: FrameProtocol(self.link.received, self._stream_ended), sock=ours
        )
        self.link.attach(protocol)
        self._protocol = protocol
        with theirs:
            self._process = self._spawn(theirs.fileno(), environment)
        self._end = ProcessEnd(self._process.pid, self._ended)
        try:
            loaded = await self.link.load(load, longest_s=longest_s)
            if self._gone.is_set():
                raise WorkerDied("a worker ended right after it had loaded its models")
            self._serving = True
            self.link.watch()
            return loaded
        except BaseException:
            await self.kill()
            raise

    def send(self, message: Message, buffers: Sequence[Buffer]) -> bool:
        """Send a frame, unless more than `MOST_UNSENT_BYTES` wait; return whether it was sent."""
        if self.link.unsent_bytes > MOST_UNSENT_BYTES:
            return False
        self.link.send(message, buffers)
        return True

    def terminate(self, why: str) -> None:
        """Kill the worker without waiting; `on_end` will report it with `why`."""
        if not self._gone.is_set():
            self._killed_for = why
            self._signal(signal.SIGKILL)

    async def stop(self, *, longest_s: float) -> None:
        """Ask the worker to end, then force it; returns when it is gone."""
        self._stopping = True
        if self._process is None or self._gone.is_set():
            return
        self.link.send(Stop())
        if not await self._is_gone_within(longest_s):
            self._signal(signal.SIGTERM)
            await self._is_gone_within(TERMINATE_WAIT_S)
        await self.kill()

    async def kill(self) -> None:
        self._stopping = True
        if self._process is not None and not self._gone.is_set():
            self._signal(signal.SIGKILL)
            await self._is_gone_within(KILL_WAIT_S)

    def _environment(self, load: Load) -> dict[str, str]:
        settings = thread_settings(len(self._cores))
        if self._cuda:
            settings[CUDA_SETTING] = visible_cuda(self._cuda, os.environ.get(CUDA_SETTING))
        projects = [Path(operator.project) for operator in load.operators]
        given = worker_variables(os.environ, projects, [replica.model for replica in load.replicas])
        return given | settings

    def _spawn(self, fd: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "gearshift.runtime.workers.worker", "--fd", str(fd)]
        command += ["--cores", ",".join(str(core) for core in sorted(self._cores)), "--parent", str(os.getpid())]
        command += settings_in_force().arguments()
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=2,  # a model's prints must not mix with our own standard output
            pass_fds=(fd,),
            start_new_session=True,
        )

    def _stream_ended(self) -> None:
        if not self._stopping and not self._gone.is_set():
            if self._protocol is not None and self._protocol.fault:
                self._killed_for = SENT.format(self._protocol.fault)
            self._signal(signal.SIGKILL)  # its socket is closed, so it can send nothing more

    def _ended(self) -> None:
        """Kill what the zombie started (its group still has its id), then reap it."""
        assert self._process is not None
        self._signal(signal.SIGKILL)
        status = self._process.wait()
        self._gone.set()
        self.link.close()
        how = how_it_ended(status, self._killed_for)
        loading = self.link.fail_loading(WorkerDied(f"a worker {how} while it loaded its models"))
        if not loading and self._serving and not self._stopping:
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


def thread_settings(cores: int) -> dict[str, str]:
    return dict.fromkeys(THREAD_SETTINGS, str(max(1, cores)))


def how_it_ended(status: int, killed_for: str = "") -> str:
    if killed_for:
        return f"was killed ({killed_for})"
    if status >= 0:
        return f"ended with status {status}"
    if status == -signal.SIGKILL:
        return "ended by signal 9 (SIGKILL, as the kernel sends it when memory runs out)"
    return f"ended by signal {-status} ({signal.strsignal(-status)})"


def visible_cuda(places: Sequence[int], seen: str | None) -> str:
    """`CUDA_VISIBLE_DEVICES` for `places` among those `seen` at present; raises `InvalidInput`."""
    names = None if seen is None else [name.strip() for name in seen.split(",") if name.strip()]
    if names is None:
        return ",".join(str(place) for place in places)
    require(
        max(places) < len(names),
        f"the plan needs {max(places) + 1} CUDA devices, but {CUDA_SETTING} is {seen!r}",
        remedy="let this process see more devices, or plan for fewer",
    )
    return ",".join(names[place] for place in places)


_SECRET = re.compile(
    r"(KEYS?|KEY_ID|TOKENS?|SECRETS?|PASS|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|HEADERS|COOKIES?|DSN)(_|\d*$)",
    re.IGNORECASE,
)
_OF_THE_SERVER = ("GEARSHIFT_", "OTEL_", "CREDENTIALS_DIRECTORY")


def worker_variables(
    environment: Mapping[str, str], projects: Iterable[Path], models: Collection[str]
) -> dict[str, str]:
    """The variables for a worker that loads these models of the `gearshift.toml` at each of `projects`.

    Options of the server, names that look like secrets, and keys of remote models are left out,
    except those that a model of the worker names in `environment` or `api_key_env`.
    """
    declared = [project for path in dict.fromkeys(projects) if (project := _project(path)) is not None]
    needed = {name for project in declared for name in _needed(project, models)}
    keys = {name for project in declared for name in _keys(project)}
    return {
        name: value
        for name, value in environment.items()
        if name in needed or not (name in keys or name.startswith(_OF_THE_SERVER) or _SECRET.search(name))
    }


def _project(path: Path) -> Project | None:
    try:
        return read_project(path)
    except InvalidInput:  # the worker reports it when it loads
        return None


def _needed(project: Project, models: Collection[str]) -> set[str]:
    chosen = [model for name, model in project.models.items() if name in models]
    remote = {one.remote.api_key_env for one in chosen if one.remote is not None and one.remote.api_key_env}
    return remote.union(*(one.environment for one in chosen))


def _keys(project: Project) -> set[str]:
    return {
        one.remote.api_key_env for one in project.models.values() if one.remote is not None and one.remote.api_key_env
    }
