"""What profiling language models has to do: engines to time, prompts to ask, answers and times that are kept."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gearshift.hardware import is_cuda
from gearshift.measuring.engines.judging import Judge
from gearshift.measuring.engines.kept import KeptJudgements, KeptRows
from gearshift.measuring.engines.reached import Said, cores_as_served
from gearshift.measuring.engines.sharing import Beside, beside_of, pairs_of
from gearshift.measuring.engines.timing import Work
from gearshift.models.language_config import EngineSettings, LanguageProject
from gearshift.profiles.engines.prompts import Prompt
from gearshift.runtime.backends.local import available_cores

Progress = Callable[[str, float], None]
Notice = Callable[[str], None]
Place = tuple[str, int]
"""A model, and its `tensor_parallel`."""


@dataclass(slots=True, eq=False)
class Task:
    """The cost of a profile; `planned` counts the calls of models and judge, `done` those made or kept."""

    path: Path
    project: LanguageProject
    prompts: tuple[Prompt, ...]
    kept: dict[Place, KeptRows]
    judgements: KeptJudgements
    progress: Progress
    notice: Notice
    judge: Judge | None = None
    planned: int = 0
    done: int = 0
    available: tuple[int, ...] = field(default_factory=available_cores)
    """The processors for engines and for this process."""
    said: dict[str, list[Said]] = field(default_factory=dict)
    """The words about themselves of each model's endpoints, of whatever degree, as any of them may be served."""

    @property
    def places(self) -> list[Place]:
        """Engines to be measured; the first of each model is asked for answers, too."""
        return [(name, degree) for name, model in self.project.models.items() for degree in model.engine.degrees]

    @property
    def asked(self) -> dict[str, Prompt]:
        """The prompts by their keys; of alike ones, which are asked once, the last."""
        return {one.key: one for one in self.prompts}

    def settings(self, place: Place) -> EngineSettings:
        name, degree = place
        return self.project.models[name].engine.on(degree)

    def answers(self, place: Place) -> bool:
        name, degree = place
        return degree == self.project.models[name].engine.degrees[0]

    def step(self, what: str, calls: int = 1) -> None:
        self.done += calls
        self.progress(what, min(1.0, self.done / max(1, self.planned)))


def pairs_in(task: Task, works: dict[Place, Work]) -> list[tuple[Beside, Beside]]:
    if not task.project.profile.sharing:
        return []
    return pairs_of([beside_of(place[0], task.settings(place), work) for place, work in works.items()])


def processors_beside(task: Task) -> frozenset[int] | None:
    """The processors that engines leave to this process, as where they are served; None where none have any."""
    started = [task.settings(place) for place in task.places if task.settings(place).command]
    if not started or any(is_cuda(one.kind) for one in started):
        return None
    taken = frozenset[int]().union(*(cores_as_served(one, task.available) for one in started))
    return frozenset(task.available) - taken or None


def named(task: Task, place: Place) -> str:
    name, degree = place
    several = len(task.project.models[name].engine.degrees) > 1
    return f"model {name!r}" + (f", tensor_parallel {degree}" if several else "")


def named_pair(pair: tuple[Beside, Beside]) -> str:
    degree = pair[0].settings.degrees[0]
    return f"models {pair[0].name!r} and {pair[1].name!r} beside each other" + (
        f", tensor_parallel {degree}" if degree > 1 else ""
    )
