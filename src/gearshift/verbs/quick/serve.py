"""Serve a plan, or models that have none yet."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

from gearshift.errors import require
from gearshift.plans.plan_folder import choose_plan
from gearshift.serving.door.settings import ServerSettings
from gearshift.support.files import PathLike
from gearshift.verbs.inputs import Notice
from gearshift.verbs.options import Backend, Option, ProfileFolder, ProjectOfPlan
from gearshift.verbs.quick.keeping import folder_of, journal_kept
from gearshift.verbs.quick.sources import models_at

if TYPE_CHECKING:
    from gearshift.serving.operate.kind import ServedKind

Options = ParamSpec("Options")

OF_MODELS = ("latency_s", "accuracy", "samples", "example")
_PLACES = {"profile_path": "--profile", "project_path": "--project"}


class ServeOptions(ServerSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `serve`: settings of the server, and where to find what it serves.

    From a folder of plans, the most accurate is served that is predicted to be within `latency_s`,
    or the fastest that reaches `accuracy`; models without a plan are planned for them. `say` is
    called with what the server has to report; by default that is logged.
    """

    backend: Backend = "local"
    profile_path: ProfileFolder = None
    project_path: ProjectOfPlan = None
    journal_path: Annotated[PathLike | None, Option("Write gear shifts and faults as JSON lines.", "--journal")] = None
    latency_s: float | None = None
    accuracy: Annotated[
        float | None,
        Option("Of a folder of plans, serve the fastest that is predicted to reach this; plan models for it."),
    ] = None
    samples: Annotated[
        str | None, Option("Of models without a plan: the function of their samples.", metavar="FILE.py:FUNCTION")
    ] = None
    example: Annotated[
        str | None, Option("Of models without a plan and samples: a record that they take, as JSON.", metavar="JSON")
    ] = None
    keep: Annotated[
        PathLike | None, Option("Of models without a plan: keep project, profile, plan and journal in this new folder.")
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

    `plan` may also name models that have none: `models.py:load`, a file or a folder of models, or a
    gearshift.toml. They are measured for seconds and planned first, as `plan_models` says.
    `options` are the fields of `ServeOptions`.
    """
    asked = {name: options.pop(name, None) for name in OF_MODELS}
    if is_without_plan(plan):
        require_local(options)
        keep = options.pop("keep", None)
        with folder_of(keep) as folder:
            return serve_plan(plan_found(plan, folder, **asked), **journal_kept(options, keep))
    require_for_models(asked | {"keep": options.pop("keep", None)}, plan)
    return serve_plan(chosen_plan(plan, latency_s=asked["latency_s"], accuracy=asked["accuracy"]), **options)


def serve_plan(path: Path, **options: Any) -> int:
    """As `serve`, for a plan file."""
    from gearshift.serving.serve import serve as serve_kind

    given = {name: options.pop(name) for name in ServerSettings.__struct_fields__ if name in options}
    named: dict[str, Any] = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    if options.get("say") is None:
        options.pop("say", None)
    return serve_kind(kind_served(path), path, settings=ServerSettings(**named), **options)


def kind_served(path: Path) -> "ServedKind[Any, Any]":
    """What serves the kind of plan that lies there; the other's modules are not loaded."""
    from gearshift.verbs.language.inputs import plans_language

    if plans_language(path):
        from gearshift.serving.openai.served import LANGUAGE_MODELS

        return LANGUAGE_MODELS
    from gearshift.serving.rows.served import ROWS

    return ROWS


def is_without_plan(source: PathLike) -> bool:
    """Whether `source` names models, and no plan; raises `InvalidInput` where it is to, and has none."""
    return models_at(source) is not None


def plan_found(source: PathLike, folder: Path, **asked: Any) -> Path:
    """Measure and plan the models at `source`, as `plan_models`; their plan's file in `folder`."""
    from gearshift.verbs.quick.light import plan_models

    found = models_at(source)
    assert found is not None
    return plan_models(found, folder, **asked)


def require_for_models(given: Mapping[str, object], plan: PathLike) -> None:
    """Refuse options of models without a plan, given for a plan."""
    flag = next((f"--{name}" for name in ("samples", "example", "keep") if given.get(name) is not None), "")
    require(not flag, f"is a plan, and {flag} is for models without one", where=str(plan), remedy=f"leave {flag} out")


def require_local(options: Mapping[str, Any]) -> None:
    """Refuse what models cannot have that are measured here and now."""
    backend = options.get("backend") or "local"
    require(
        backend == "local",
        f"models without a plan are measured and served here, and --backend is {backend}",
        remedy="leave it out, or plan first with `gearshift profile` and `gearshift plan`",
    )
    flag = next((flag for name, flag in _PLACES.items() if options.get(name) is not None), "")
    require(not flag, f"{flag} is given, which is of a plan, for models without one", remedy=f"leave {flag} out")


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
