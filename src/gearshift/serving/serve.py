"""`serve`: read a plan, of whatever kind, and answer requests until a signal ends it."""

import logging
from functools import partial
from pathlib import Path
from typing import Any

from gearshift.errors import require
from gearshift.observability.journal import Journal, JournalFile
from gearshift.observability.logs import LogSettings, logging_to_stderr
from gearshift.observability.recent_events import RecentEvents
from gearshift.observability.tracing import tracing_if
from gearshift.serving.door.bounds import with_memory_bounds
from gearshift.serving.door.keys import read_keys
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.sockets import bound_sockets, is_loopback, server_context
from gearshift.serving.operate.kind import BackendKind, ServedKind
from gearshift.serving.operate.start_progress import Bar
from gearshift.serving.server import Say, Server
from gearshift.support.event_loop import allow_many_connections, loop_factory, require_own_process, run_in_own_loop
from gearshift.support.files import PathLike
from gearshift.support.processors import pinned

OPEN_TO_ALL = (
    "warning: other machines can reach this server, and it asks nobody for a key; "
    "give --api-keys, or listen on 127.0.0.1 alone"
)

log = logging.getLogger(__name__)


def serve(
    kind: ServedKind[Any, Any],
    plan_path: PathLike,
    *,
    settings: ServerSettings,
    backend: BackendKind = "local",
    profile_path: PathLike | None = None,
    project_path: PathLike | None = None,
    journal_path: PathLike | None = None,
    say: Say = log.info,
    bar: Bar | None = None,
) -> int:
    """Serve a plan of this kind until SIGTERM or SIGINT; return the exit code.

    The plan names its profile, and the profile its project; `profile_path` (a folder) and
    `project_path` (a `gearshift.toml`) override where these are.  After the first signal every
    accepted request is answered within `settings.drain_s`, and the exit code is 0; a second signal
    ends the server at once, with 1.  Raises `InvalidInput` for an unusable plan, profile, port,
    key file or certificate, `ModelFailed` for a model that cannot be loaded; nothing is left
    running.  How far loading is shows on a `bar`, or without one is told by `say`.
    """
    require_own_process("a server")
    kind.require_has(settings)
    read = partial(
        kind.read_task,
        settings=settings,
        backend=backend,
        profile_path=None if profile_path is None else Path(profile_path),
        project_path=None if project_path is None else Path(project_path),
    )
    task = read(Path(plan_path))
    settings = with_memory_bounds(settings)
    require_usable_files(settings)
    keys = read_keys(settings.api_keys, settings.admin_keys)
    allow_many_connections()
    settings, doubt = kind.fitted(settings)
    journal = RecentEvents(Journal() if journal_path is None else JournalFile(Path(journal_path)))
    logs = logging_to_stderr(LogSettings(settings.log_level, settings.log_format))
    traces = tracing_if(settings.otel)
    bound = bound_sockets(settings.host, settings.port, shared=settings.front_ends > 1)
    with bound as socks, pinned(task.router_cores), logs, traces as tracing:
        try:
            journal.write("start", plan=str(plan_path), backend=backend)
            open_to_all = settings.api_keys is None and not all(map(is_loopback, socks))
            for sentence in (doubt, OPEN_TO_ALL if open_to_all else "", *kind.doubts(task)):
                if sentence:
                    log.warning(sentence)

            def read_later(path: Path) -> Any:
                later = read(path)
                for sentence in kind.doubts(later):
                    log.warning(sentence)
                return later

            async def main() -> int:
                return await Server(kind, task, read_later, settings, keys, journal, socks, say, tracing, bar).main()

            return run_in_own_loop(main(), loop_factory=loop_factory())
        finally:
            journal.close()


def require_usable_files(settings: ServerSettings) -> None:
    if settings.plans is not None:
        require(Path(settings.plans).is_dir(), "no such folder", where=settings.plans, remedy="make it, for plans")
    if settings.tls_certificate is not None and settings.tls_key is not None:
        server_context(settings.tls_certificate, settings.tls_key)
