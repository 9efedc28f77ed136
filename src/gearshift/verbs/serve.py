"""Serve a plan."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

from gearshift.errors import require
from gearshift.plans.plan_folder import choose_plan
from gearshift.serving.door.settings import ServerSettings
from gearshift.support.files import PathLike
from gearshift.verbs.inputs import Notice
from gearshift.verbs.options import Backend, Option, ProfileFolder, ProjectOfPlan

Options = ParamSpec("Options")


class ServeOptions(ServerSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `serve`: settings of the server, and where to find what it serves.

    From a folder of plans, the most accurate is served that is predicted to be within `latency_s`,
    or the fastest that reaches `accuracy`. `say` is called with what the server has to report; by
    default that is logged.
    """

    backend: Backend = "local"
    profile_path: ProfileFolder = None
    project_path: ProjectOfPlan = None
    journal_path: Annotated[PathLike | None, Option("Write gear shifts and faults as JSON lines.", "--journal")] = None
    latency_s: float | None = None
    accuracy: Annotated[
        float | None, Option("Of a folder of plans, serve the fastest that is predicted to reach this.")
    ] = None
    say: Notice | None = None


def _typed_by(
    options: Callable[Options, ServeOptions],
) -> Callable[[Callable[..., int]], Callable[Concatenate[PathLike, Options], int]]:
    """Type the keywords of a function as the fields of a struct, for editors and type checkers."""
    return lambda function: function


@_typed_by(ServeOptions)
def serve(plan: PathLike, **options: Any) -> int:
    """Serve a plan file, or one of a folder of plans, until a signal ends it; return the exit code.

    `options` are the fields of `ServeOptions`.
    """
    from gearshift.serving.openai.language_server import serve_language
    from gearshift.serving.serve import serve as serve_models
    from gearshift.verbs.language.inputs import plans_language

    path = chosen_plan(plan, latency_s=options.pop("latency_s", None), accuracy=options.pop("accuracy", None))
    given = {name: options.pop(name) for name in ServerSettings.__struct_fields__ if name in options}
    named: dict[str, Any] = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    if options.get("say") is None:
        options.pop("say", None)
    run = serve_language if plans_language(path) else serve_models
    return run(path, settings=ServerSettings(**named), **options)


def chosen_plan(plan: PathLike, *, latency_s: float | None = None, accuracy: float | None = None) -> Path:
    """Choose a plan file from a folder by an objective; a plan file is returned unchanged.

    Chosen is the most accurate plan within `latency_s`, or the fastest that reaches `accuracy`.
    Raises `InvalidInput` where no plan of the folder meets the objective, and for an objective
    given with a single plan.
    """
    path = Path(plan)
    if path.is_dir():
        return choose_plan(path, latency_s=latency_s, accuracy=accuracy)
    require(
        (latency_s is None and accuracy is None) or not path.exists(),
        "is one plan, and an objective chooses from a folder of plans",
        where=str(path),
        remedy="leave the latency and the accuracy out",
    )
    return path
