"""A pipeline that answers chunks: in worker processes of this one, or at a server."""

import time
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

from gearshift.bulk.answers import Answers
from gearshift.bulk.background import Background, Calls, result_of
from gearshift.bulk.choice import Choice, choose
from gearshift.bulk.server import ServedOperator
from gearshift.bulk.stages import through_cascade
from gearshift.bulk.workers import Workers
from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput, NoAnswer, require
from gearshift.gear import GearPlan
from gearshift.model import LABEL, Arrays, TensorSpec
from gearshift.models.config import project_file
from gearshift.plans.plan_file import read_plan
from gearshift.plans.served import require_served
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import NAME_IT, read_profile
from gearshift.support.files import PathLike


class _Answering(Protocol):
    async def answer(self, inputs: Arrays, rows: int, label: str, end_s: float | None) -> Answers: ...

    async def stop(self) -> None: ...


class Operator:
    """A pipeline, ready to answer chunks of rows; use it in a `with` block, or `close` it.

    `inputs` are its tensors, `label` the output that is told as the label. `choice` has the cascade
    that was chosen in process; None at a server.
    """

    def __init__(
        self,
        pipeline: str,
        answering: _Answering,
        background: Background,
        *,
        inputs: tuple[TensorSpec, ...],
        label: TensorSpec,
        choice: Choice | None = None,
    ) -> None:
        self.pipeline, self.inputs, self.label, self.choice = pipeline, inputs, label, choice
        self._answering, self._background = answering, background
        self._closing = weakref.finalize(self, _close, answering, background)

    def __enter__(self) -> "Operator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(
        self, inputs: Arrays, rows: int, end_s: float | None = None, calls: Calls | None = None
    ) -> "Future[Answers]":
        """Begin to answer n rows; what cannot begin by `end_s` on the monotonic clock is not answered.

        To cancel the future stops the work on them at once, and so does `stop` for all of `calls`.
        """
        require(self._closing.alive, f"pipeline {self.pipeline!r} was closed", remedy="open or register it again")
        return self._background.submit(self._answering.answer(inputs, rows, self.label.name, end_s), calls)

    def answer(self, inputs: Arrays, rows: int) -> Answers:
        return result_of(self.submit(inputs, rows))

    def stop(self, calls: Calls) -> None:
        self._background.stop(calls)

    def close(self) -> None:
        """End the workers; this happens too when nothing refers to the operator any more, or at exit."""
        self._closing()


def _close(answering: _Answering, background: Background) -> None:
    background.wait_for(answering.stop())
    background.close()


class _InProcess:
    """The chosen cascade on workers of this process."""

    def __init__(self, choice: Choice, workers: Workers) -> None:
        (self._cascade,) = choice.cascades.values()
        self._workers = workers

    async def answer(self, inputs: Arrays, rows: int, label: str, end_s: float | None) -> Answers:
        def is_late() -> bool:
            return end_s is not None and time.monotonic() > end_s

        return await through_cascade(self._cascade, inputs, rows, self._workers, is_late)

    async def stop(self) -> None:
        await self._workers.stop()


def open_operator(
    plan: GearPlan | PathLike,
    pipeline: str | None = None,
    *,
    accuracy: float | None = None,
    confidence: float | None = None,
    gear: int | None = None,
    cascade: Cascade | None = None,
    label: str = LABEL,
    workers: int | None = None,
    profile: Profile | PathLike | None = None,
    project: PathLike | None = None,
    api_key: str | None = None,
    ca_file: PathLike | None = None,
) -> Operator:
    """Load the models of a plan, or ask the server at a URL.

    In process the cascade is `cascade`, that of `gear`, or the cheapest of `accuracy`, with `confidence`; by
    default as the plan's objective says (`gearshift.bulk.choice`). `label` is the output to tell.
    There are as many `workers` as there are places for them, each with all models of the cascade.
    Raises `InvalidInput`, or `ModelFailed` where a model cannot be loaded.
    """
    in_process: dict[str, object] = {"accuracy": accuracy, "confidence": confidence, "gear": gear, "workers": workers}
    in_process |= {"cascade": cascade, "profile": profile, "project": project}
    if is_url(plan):
        _require_none(in_process, "and the models are those of a server", "leave it out, or give a plan")
        return _at_server(str(plan), pipeline, label, api_key, ca_file)
    _require_none({"api_key": api_key, "ca_file": ca_file}, "and no URL", "leave it out, or give a URL")
    made = plan if isinstance(plan, GearPlan) else read_plan(Path(plan))
    name = named_pipeline(made, pipeline)
    require_served(made)
    folder = None if isinstance(plan, GearPlan) else Path(plan).parent
    measured, place = profile_of(made, name, folder, profile)
    project_path = _project_of(measured, place, project)
    choice = choose(made, name, measured, accuracy=accuracy, confidence=confidence, gear=gear, cascade=cascade)
    told = _label_of(measured.outputs, label, name)
    (chosen,) = choice.cascades.values()
    background = Background()
    background.start()
    pool = Workers.of(made, measured, chosen.models, project_path, told.name, workers)
    _started(background, pool)
    answering = _InProcess(choice, pool)
    return Operator(name, answering, background, inputs=measured.inputs, label=told, choice=choice)


def pipelines_of(
    plan: GearPlan | PathLike, *, api_key: str | None = None, ca_file: PathLike | None = None
) -> list[str]:
    """The names of the pipelines of a plan, or of a server."""
    if not is_url(plan):
        return list((plan if isinstance(plan, GearPlan) else read_plan(Path(plan))).pipelines)
    background = Background()
    background.start()
    served = ServedOperator(str(plan), api_key=api_key, ca_file=None if ca_file is None else Path(ca_file))
    try:
        return background.wait_for(served.pipelines())
    except NoAnswer as error:
        raise _not_there(str(plan), error) from None
    finally:
        background.wait_for(served.stop())
        background.close()


def is_url(plan: object) -> bool:
    return isinstance(plan, str) and plan.startswith(("http://", "https://"))


def _at_server(url: str, pipeline: str | None, label: str, api_key: str | None, ca_file: PathLike | None) -> Operator:
    served = ServedOperator(url, api_key=api_key, ca_file=None if ca_file is None else Path(ca_file))
    background = Background()
    background.start()
    try:
        background.wait_for(served.start(pipeline))
        told = _label_of(served.outputs, label, served.pipeline)
    except BaseException as error:
        background.wait_for(served.stop())
        background.close()
        if isinstance(error, NoAnswer):
            raise _not_there(url, error) from None
        raise
    return Operator(served.pipeline, served, background, inputs=served.inputs, label=told)


def _not_there(url: str, error: NoAnswer) -> NoAnswer:
    return NoAnswer(f"{url} cannot be reached ({error}); is the server running?", sent=False)


def _started(background: Background, pool: Workers) -> None:
    try:
        background.wait_for(pool.start())
    except BaseException:
        background.wait_for(pool.stop())
        background.close()
        raise


def named_pipeline(plan: GearPlan, pipeline: str | None) -> str:
    """The pipeline of this name, or the only one; raises `InvalidInput` unless it has one node."""
    names = list(plan.pipelines)
    require(
        pipeline in names if pipeline is not None else len(names) == 1,
        f"there is no pipeline {pipeline!r}" if pipeline is not None else "the plan has several pipelines",
        remedy=f"name one of {', '.join(names)}",
    )
    name = pipeline or names[0]
    nodes = list(plan.pipelines[name].nodes)
    require(
        len(nodes) == 1,
        f"pipeline {name!r} has the nodes {', '.join(nodes)}, and a table goes through one node in process",
        remedy="serve the plan, and give the URL of the server",
    )
    return name


def profile_of(
    plan: GearPlan, pipeline: str, folder: Path | None, profile: Profile | PathLike | None = None
) -> tuple[Profile, Path | None]:
    """The profile of the pipeline's only operator, and its folder; `folder` is the plan's."""
    (node,) = plan.pipelines[pipeline].nodes.values()
    source = plan.profiles[node.operator]
    place: Path | None = None
    if isinstance(profile, Profile):
        measured = profile
    else:
        require(
            profile is not None or folder is not None,
            "a plan that was not read from a file needs its profile",
            remedy="give profile=",
        )
        place = Path(profile) if profile is not None else Path(str(folder)) / source.path
        measured = read_profile(place, remedy=NAME_IT)
    require(
        measured.sha256 == source.sha256,
        "the plan was made from another profile",
        where=str(place or "plan"),
        remedy="make the plan anew with `gearshift plan`, or name its profile",
    )
    return measured, place


def _project_of(profile: Profile, folder: Path | None, project: PathLike | None) -> Path:
    if project is None:
        if profile.project is None or folder is None:
            raise InvalidInput(
                "the profile names no project whose models could be loaded",
                where=str(folder or "profile"),
                remedy="name one with project=, or ask a server by its URL",
            )
        project = folder / profile.project
    path = project_file(Path(project)).resolve()
    require(path.is_file(), "no such file", where=str(path), remedy="name the project whose models were profiled")
    return path


def _label_of(outputs: tuple[TensorSpec, ...], name: str, pipeline: str) -> TensorSpec:
    found = next((spec for spec in outputs if spec.name == name), None)
    if found is None or len(found.shape) > 1:
        usable = [spec.name for spec in outputs if len(spec.shape) == 1]
        what = "no output" if found is None else "several values per row in output"
        raise InvalidInput(
            f"pipeline {pipeline!r} has {what} {name!r}",
            remedy=f"give label=, one of {', '.join(usable)}" if usable else "it has no output of one value per row",
        )
    return found


def _require_none(given: Mapping[str, object], why: str, remedy: str) -> None:
    for name, value in given.items():
        require(value is None, f"{name} is given, {why}", remedy=remedy)
