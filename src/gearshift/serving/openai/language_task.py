"""A plan of language models with what is needed to serve it, read from their files."""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from io import BufferedReader
from pathlib import Path

import msgspec
import numpy as np
from msgspec import UNSET

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.hardware import is_remote
from gearshift.models.config import project_file
from gearshift.models.language_config import MEMORY_SHARE, EngineSettings, LanguageProject, read_language_project
from gearshift.placement import Replica
from gearshift.profiles.engines.engine_profile import EngineProfile
from gearshift.profiles.engines.engine_tables import EngineTables, engine_tables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.store import read_language_profile
from gearshift.runtime.backends.local import assign_cores, available_cores, cores_beside_engines, cuda_places
from gearshift.runtime.engines.replicas.engine_process import EngineProcess, engine_environment
from gearshift.runtime.engines.replicas.engine_replica import EngineReplica
from gearshift.runtime.engines.replicas.own_key import key_of, own_key
from gearshift.runtime.workers.worker_process import CUDA_SETTING, visible_cuda
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.operate.kind import BackendKind, Task, profile_to_serve, read_plan_to_serve
from gearshift.support.decoding import UNREADABLE
from gearshift.support.files import open_to_read

LONGEST_LINE = 1 << 20
CHATS, TEXTS = "/v1/chat/completions", "/v1/completions"
Command = Callable[[int, str], list[str]]
"""The words that start an engine on a port, with a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageTask(Task):
    """`project` is None where engines are emulated, `folder` the profile's.

    `available` are the processors that this process might use at first.
    """

    tables: EngineTables
    profile: LanguageProfile
    folder: Path
    project: LanguageProject | None
    project_path: Path
    available: tuple[int, ...]


def cores_left(plan: GearPlan, project: LanguageProject | None, available: Sequence[int]) -> frozenset[int] | None:
    """The processors that engines leave to this process."""
    if project is None:
        return None
    return cores_beside_engines(plan.hardware, started_on(plan, project), available) or frozenset(available)


def started_on(plan: GearPlan, project: LanguageProject) -> list[str]:
    """The devices of engines that are started by a command."""
    commands = {name for name, model in project.models.items() if model.engine.command}
    return [id for replica in plan.placement.replicas if replica.model in commands for id in replica.device_ids]


def read_language_task(
    plan_path: Path,
    backend: BackendKind,
    *,
    profile_path: Path | None = None,
    project_path: Path | None = None,
    available: Sequence[int] | None = None,
) -> LanguageTask:
    """`available` are processors, by default those that this process may use.

    Raises `InvalidInput` where a file is missing or does not fit.
    """
    require(backend != "ray", "language models run in engines", remedy="leave out --backend ray")
    plan, served = read_plan_to_serve(plan_path)
    (operator,) = plan.profiles
    profile, folder = profile_to_serve(plan, plan_path, operator, profile_path, read_language_profile)
    project, path = None, Path()
    if backend != "emulated":
        require(
            project_path is not None or profile.project is not None,
            "the profile names no project, whose engines could be asked",
            where=str(folder),
            remedy="serve with --backend emulated, or name a project",
        )
        path = project_file(project_path or folder / str(profile.project)).resolve()
        project = read_language_project(path)
        lacking = sorted({replica.model for replica in plan.placement.replicas} - set(project.models))
        require(not lacking, f"the plan has models {lacking}, and the project has {list(project.models)}")
    available = available_cores() if available is None else tuple(available)
    return LanguageTask(
        served=served,
        plan=plan,
        router_cores=cores_left(plan, project, available),
        tables=engine_tables(plan, profile),
        profile=profile,
        folder=folder.resolve(),
        project=project,
        project_path=path,
        available=available,
    )


def make_replicas(
    task: LanguageTask, settings: ServerSettings, running: Sequence[EngineReplica] = ()
) -> list[EngineReplica]:
    """The engines of a task, in the order of its tables; in a running event loop.

    Those among `running` that would be made alike are adopted; the others are not started.
    """
    left, engines = list(running), list[EngineReplica]()
    for made in _made_replicas(task, settings):
        alike = [one for one in left if one.origin == made.origin]
        alike.sort(key=lambda one: one.id != made.id)
        engines.append(alike[0] if alike else made)
        if alike:
            left.remove(alike[0])
            made.link.close()
    return engines


def _made_replicas(task: LanguageTask, settings: ServerSettings) -> Iterator[EngineReplica]:
    placed = {replica.id: replica for replica in task.plan.placement.replicas}
    for number, id in enumerate(task.tables.replicas):
        replica, held = placed[id], task.tables.engines[number]
        watched = partial(EngineReplica, id, probe_s=settings.probe_s, longest_probe_s=settings.shortest_hang_s)
        if task.project is None:
            command = _emulated_command(task, replica, held)
            make, origin = _maker(task, replica, command, Path.cwd(), own_key())
            yield watched(replica.model, make=make, key=own_key(), longest_start_s=60.0, origin=origin)
            continue
        engine = task.project.models[replica.model].engine
        key = key_of(engine, f"{task.project_path}, models.{replica.model}.engine.api_key_env")
        common = partial(
            watched,
            engine.model,
            key=key,
            longest_start_s=engine.longest_start_s,
            longest_silence_s=engine.longest_s,
        )
        if engine.command:
            command = partial(_command, engine, replica, _memory_share(task.plan, replica, held), held)
            make, origin = _maker(task, replica, command, task.project_path.parent, key or "")
            yield common(make=make, origin=(*origin, engine.model, engine.api_key_env))
        else:
            place = number - int(task.tables.replica_begin[task.tables.replica_model[number]])
            require(
                place < len(engine.urls),
                f"the plan has more replicas of model {replica.model!r} than the project has URLs",
                where=str(task.project_path),
                remedy="give one URL for each replica",
            )
            url = engine.urls[place]
            yield common(url=url, origin=(url, engine.model, key))


def _command(
    engine: EngineSettings, replica: Replica, memory_share: float, held: EngineProfile, port: int, key: str
) -> list[str]:
    return engine.argv(
        port=port,
        memory_share=memory_share,
        kv_tokens=_kv_tokens(held),
        tensor_parallel=replica.tensor_parallel,
        api_key=key,
    )


def _kv_tokens(held: EngineProfile) -> int:
    return held.kv_blocks * held.block_tokens


def _emulated_command(task: LanguageTask, replica: Replica, held: EngineProfile) -> Command:
    command = [sys.executable, "-P", "-m", "gearshift.runtime.engines.emulated", str(task.folder)]
    command += ["--model", replica.model, "--device-kind", held.device_kind]
    command += ["--tensor-parallel", str(replica.tensor_parallel), "--kv-tokens", str(_kv_tokens(held))]
    command += _board(task, replica)
    return lambda port, _: [*command, "--port", str(port)]


def _board(task: LanguageTask, replica: Replica) -> list[str]:
    """The arguments by which emulated engines on the same devices slow each other."""
    tables = task.tables
    mine = tables.replicas.index(replica.id)
    sharing = np.flatnonzero(tables.device == tables.device[mine]).tolist()
    if len(sharing) == 1:
        return []
    factors = [float(tables.sharing[mine * len(tables.replicas) + other]) for other in sharing]
    named = [*tables.device_groups[tables.device[mine]], *(tables.replicas[other] for other in sharing)]
    path = _boards() / sha256("\n".join(named).encode()).hexdigest()[:16]
    told = ",".join(map(str, factors))
    return ["--board", str(path), "--place", str(sharing.index(mine)), "--factors", told]


@cache
def _boards() -> Path:
    """A folder that is removed when this process ends."""
    folder = tempfile.mkdtemp(prefix="gearshift-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _memory_share(plan: GearPlan, replica: Replica, held: EngineProfile) -> float:
    """The part of each device's memory that the weights, and the contexts that were planned, take.

    Where the plan gives no contexts, or the profile not their size, engines that share a device have equal parts.
    """
    devices = {device.id: device for device in plan.hardware.devices}
    first = devices[replica.device_ids[0]]
    is_planned = replica.kv_tokens is not UNSET and held.weights_bytes > 0 and held.kv_bytes_per_token > 0
    if is_planned and not is_remote(first.kind):
        needed_bytes = held.weights_bytes + _kv_tokens(held) * held.kv_bytes_per_token
        return needed_bytes / replica.tensor_parallel / first.memory_bytes
    beside = [one for one in plan.placement.replicas if set(one.device_ids) & set(replica.device_ids)]
    return MEMORY_SHARE / len(beside)


def _maker(
    task: LanguageTask, replica: Replica, command: Command, folder: Path, key: str
) -> tuple[Callable[[], EngineProcess], tuple[Hashable, ...]]:
    """What makes the process of a replica's engine, and all that decides how it is started, but for its port and key.

    Raises `InvalidInput` where the replica's devices are absent.
    """
    hardware = task.plan.hardware
    kinds = {device.id: device.kind for device in hardware.devices}
    cores: frozenset[int] = frozenset()
    cuda = None
    if task.project is not None and not is_remote(kinds[replica.device_ids[0]]):
        places = [place for id, place in cuda_places(hardware).items() if id in replica.device_ids]
        if places:
            cuda = visible_cuda(places, os.environ.get(CUDA_SETTING))
        else:
            assigned = assign_cores(hardware, task.available)
            cores = frozenset().union(*(assigned[id] for id in replica.device_ids))
    environment = engine_environment(cuda, len(cores))

    def make() -> EngineProcess:
        return EngineProcess(
            *(replica.id, lambda port: command(port, key)), folder=folder, environment=environment, cores=cores, key=key
        )

    return make, (replica.model, tuple(command(0, "")), folder, cores, tuple(sorted(environment.items())))


def served_path(task: LanguageTask) -> str:
    """The path of OpenAI's API for what the pipeline's prompts are: chats, where none are known."""
    if task.project is None:
        return CHATS
    try:
        with BufferedReader(open_to_read(task.project_path.parent / task.project.prompts)) as file:
            first = msgspec.json.decode(file.readline(LONGEST_LINE), type=dict[str, msgspec.Raw])
    except (OSError, *UNREADABLE):
        return CHATS
    return TEXTS if "prompt" in first and "messages" not in first else CHATS
