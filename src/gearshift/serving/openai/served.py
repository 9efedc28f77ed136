"""How plans of language models are served: what there is to `ServedKind` for them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from gearshift.errors import require
from gearshift.observability.journal import Journal
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.runtime.backends.local import available_cores
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.http.application import Found
from gearshift.serving.openai.deployment import LanguageDeployment
from gearshift.serving.openai.language_task import LanguageTask, read_language_task, served_path
from gearshift.serving.operate.kind import BackendKind, ServedKind, Shared, Shown
from gearshift.serving.pages.front_page import shown_text
from gearshift.support.event_loop import most_open_files

OTHER_FILES = 512
"""Open files beside those of requests: engines' pipes, kept connections, logs."""


class ServedLanguage(ServedKind[LanguageTask, LanguageMetrics]):
    plural = "language models"
    lacks = frozenset(("front_ends", "grpc_port", "replan", "scaler", "adapt", "slowdown", "shadow"))
    unit = "request"
    path = "/v1"

    def fitted(self, settings: ServerSettings) -> tuple[ServerSettings, str]:
        return with_files_for_engines(settings, most_open_files())

    def read_task(
        self,
        plan_path: Path,
        *,
        settings: ServerSettings,
        backend: BackendKind,
        profile_path: Path | None = None,
        project_path: Path | None = None,
    ) -> LanguageTask:
        return read_language_task(
            plan_path, backend, profile_path=profile_path, project_path=project_path, available=available_cores()
        )

    def require_compatible(self, before: LanguageTask, after: LanguageTask, where: str) -> None:
        """Raise `InvalidInput` unless the plan serves the same pipeline with engines of the same project.

        So someone who may put plans into the folder can choose among the project's engines, but run
        nothing else.
        """
        require(
            after.tables.pipeline == before.tables.pipeline,
            f"the plan serves {after.tables.pipeline!r}, and the one in force {before.tables.pipeline!r}",
            where=where,
        )
        require(
            after.project_path == before.project_path,
            f"the plan's engines are those of another project ({after.project_path}) than the one in force "
            f"({before.project_path})",
            where=where,
            remedy="start a server with it",
        )

    def metrics(self, task: LanguageTask) -> LanguageMetrics:
        return LanguageMetrics(task.tables.pipeline, task.tables.models, task.tables.replicas)

    def deploy(
        self, task: LanguageTask, shared: Shared[LanguageMetrics], journal: Journal, before: Any = None
    ) -> LanguageDeployment:
        return LanguageDeployment(task, shared, journal, before)

    def routes(self, deployment: LanguageDeployment) -> Sequence[Found]:
        return deployment.handlers.routes

    def shown(self, task: LanguageTask) -> Sequence[Shown]:
        return [shown_text(task.tables.pipeline, served_path(task))]

    def placed(self, task: LanguageTask) -> str:
        placed = [task.tables.models[model] for model in task.tables.replica_model]
        counts = [f"{placed.count(model)} of {model}" for model in task.tables.models if model in placed]
        return f"engines: {', '.join(counts)}"


LANGUAGE_MODELS = ServedLanguage()


def with_files_for_engines(settings: ServerSettings, files: int) -> tuple[ServerSettings, str]:
    """With as many connections of clients as can each have one to an engine beside it, and why they are fewer."""
    most = max(1, (files - OTHER_FILES) // 2)
    if settings.most_connections <= most:
        return settings, ""
    doubt = (
        f"most_connections is {settings.most_connections}, and is taken as {most}: {files} files may be open, and each "
        "request may need one to its client and one to an engine; raise the bound (ulimit -n)"
    )
    return msgspec.structs.replace(settings, most_connections=most), doubt
