"""Serve a plan, or models that have none yet."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

from gearshift.errors import require
from gearshift.plans.plan_folder import choose_plan
from gearshift.serving.door.settings import ServerSettings
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Notice
from gearshift.verbs.common.options import Backend, Option, ProfileFolder, ProjectOfPlan
from gearshift.verbs.quick.keeping import folder_of, journal_kept
from gearshift.verbs.quick.sources import models_at

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
    with plan_to_serve(plan, options) as (path, left):
        return serve_plan(path, **left)


@contextmanager
def plan_to_serve(source: PathLike, options: Mapping[str, Any], **told: Any) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The file of the plan at `source`, and the options that are left to serve it.

    Models without a plan are measured and planned in a folder that is there until the block ends; of
    that `progress` and `notice` in `told` hear.
    """
    asked: dict[str, Any] = {name: options.get(name) for name in OF_MODELS}
    keep, found = options.get("keep"), models_at(source)
    left = {name: value for name, value in options.items() if name not in (*OF_MODELS, "keep")}
    if found is not None:
        from gearshift.verbs.quick.light import plan_models

        require_local(left)
        with folder_of(keep) as folder:
            yield plan_models(found, folder, **told, **asked), journal_kept(left, keep)
        return
    given = asked | {"keep": keep}
    flag = next((f"--{name}" for name in ("samples", "example", "keep") if given[name] is not None), "")
    require(not flag, f"is a plan, and {flag} is for models without one", where=str(source), remedy=f"leave {flag} out")
    yield chosen_plan(source, latency_s=asked["latency_s"], accuracy=asked["accuracy"]), left


def serve_plan(path: Path, **options: Any) -> int:
    """As `serve`, for a plan file."""
    from gearshift.serving.serve import serve as serve_kind
    from gearshift.verbs.kinds.registry import kind_of_plan

    given = {name: options.pop(name) for name in ServerSettings.__struct_fields__ if name in options}
    named: dict[str, Any] = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    if options.get("say") is None:
        options.pop("say", None)
    return serve_kind(kind_of_plan(path).kind.served(), path, settings=ServerSettings(**named), **options)


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
