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
from gearshift.bulk.graph import GraphRun
from gearshift.bulk.measured import Measured, measured_of, named_pipeline
from gearshift.bulk.server import ServedOperator
from gearshift.bulk.stages import through_cascade
from gearshift.bulk.tuple_choice import choose_tuple
from gearshift.bulk.workers import Workers
from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput, NoAnswer, require
from gearshift.gear import GearPlan
from gearshift.model import LABEL, Arrays, TensorSpec
from gearshift.plans.plan_file import read_plan
from gearshift.plans.served import require_served
from gearshift.profiles.profile import Profile
from gearshift.request import BulkWork
from gearshift.support.files import PathLike


class _Answering(Protocol):
    @property
    def waits(self) -> bool: ...

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

    @property
    def waits(self) -> bool:
        """Whether rows wait because the server has no room for them now."""
        return self._answering.waits

    def stop(self, calls: Calls) -> None:
        self._background.stop(calls)

    def close(self) -> None:
        """End the workers; this happens too when nothing refers to the operator any more, or at exit."""
        self._closing()


def _close(answering: _Answering, background: Background) -> None:
    background.wait_for(answering.stop())
    background.close()


class _InProcess:
    """The chosen cascade, or the graph with one for each node, on workers of this process."""

    waits = False

    def __init__(self, through: Cascade | GraphRun, workers: Workers) -> None:
        self._through, self._workers = through, workers

    async def answer(self, inputs: Arrays, rows: int, label: str, end_s: float | None) -> Answers:
        def is_late() -> bool:
            return end_s is not None and time.monotonic() > end_s

        if isinstance(self._through, GraphRun):
            return await self._through.answer(inputs, rows, self._workers, is_late)
        return await through_cascade(self._through, inputs, rows, self._workers, is_late)

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
    default as the plan's objective says (`gearshift.bulk.choice`). A graph has one for each node
    (`gearshift.bulk.tuple_choice`), and its `profile` is the folder with those of all operators. At a server rows
    are bulk work: they keep the cascades of `gear`, or of the cheapest gear that is predicted to reach `accuracy`.
    `label` is the output to tell. There are as many `workers` as there are places for them, each
    with all models of the cascade.
    Raises `InvalidInput`, or `ModelFailed` where a model cannot be loaded.
    """
    if is_url(plan):
        in_process: dict[str, object] = {"confidence": confidence, "workers": workers, "cascade": cascade}
        in_process |= {"profile": profile, "project": project}
        _require_none(in_process, "and the models are those of a server", "leave it out, or give a plan")
        work = BulkWork(gear=gear, accuracy=accuracy)
        return _at_server(str(plan), pipeline, work, label, api_key, ca_file)
    _require_none({"api_key": api_key, "ca_file": ca_file}, "and no URL", "leave it out, or give a URL")
    made = plan if isinstance(plan, GearPlan) else read_plan(Path(plan))
    name = named_pipeline(made, pipeline)
    require_served(made)
    folder = None if isinstance(plan, GearPlan) else Path(plan).parent
    measured = measured_of(made, name, folder, profile, project)
    planned = made.pipelines[name]
    told = _label_of(measured.outputs_of(planned.nodes[planned.output].operator), label, name)
    choice = _choice(made, name, measured, accuracy=accuracy, confidence=confidence, gear=gear, cascade=cascade)
    models = dict.fromkeys(model for one in choice.cascades.values() for model in one.models)
    if measured.is_graph:
        outputs = {operator: source.profile.outputs for operator, source in measured.sources.items()}
        through: Cascade | GraphRun = GraphRun(made, name, choice.cascades, outputs, told.name)
    else:
        (through,) = choice.cascades.values()
    background = Background()
    background.start()
    kept = None if measured.is_graph else told.name
    pool = Workers.of(made, list(measured.sources.values()), list(models), kept, workers)
    _started(background, pool)
    return Operator(name, _InProcess(through, pool), background, inputs=measured.inputs, label=told, choice=choice)


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


def _at_server(
    url: str, pipeline: str | None, work: BulkWork, label: str, api_key: str | None, ca_file: PathLike | None
) -> Operator:
    served = ServedOperator(url, work, api_key=api_key, ca_file=None if ca_file is None else Path(ca_file))
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


def _choice(
    plan: GearPlan,
    pipeline: str,
    measured: Measured,
    *,
    accuracy: float | None,
    confidence: float | None,
    gear: int | None,
    cascade: Cascade | None,
) -> Choice:
    profiles = measured.profiles
    if not measured.is_graph:
        (profile,) = profiles.values()
        return choose(plan, pipeline, profile, accuracy=accuracy, confidence=confidence, gear=gear, cascade=cascade)
    require(
        cascade is None,
        f"a cascade is given, and pipeline {pipeline!r} has several nodes",
        remedy="give an accuracy or a gear",
    )
    return choose_tuple(plan, pipeline, profiles, measured.records, accuracy=accuracy, confidence=confidence, gear=gear)


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
