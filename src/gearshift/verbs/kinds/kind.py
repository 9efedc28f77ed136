"""What a kind of engine has: the verbs, and which options it lacks for which shape of plan."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.planner import planners
from gearshift.planner.space.request import Kind as Engine
from gearshift.planner.space.request import Shape
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Notice, Progress
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.serving.operate.kind import ServedKind

Traces = Mapping[str, Trace]
"""By pipeline, on one clock."""

PROFILE_FIRST = "profile and plan first: gearshift profile; gearshift plan profile --trace FILE"

Given = Mapping[str, object]
"""Options by keyword; None, False and empty ones are not given."""


class Inputs(NamedTuple):
    """A plan and the records that it was made from; `path` is where it was read from, or the plan itself."""

    path: GearPlan | PathLike
    plan: GearPlan
    records: Any


class Need(NamedTuple):
    """The options of which `plan` needs one, and what is said where none is given."""

    any_of: tuple[str, ...]
    lacking: str
    remedy: str


class Apart(NamedTuple):
    """The options that do not go with one, why, and the remedy, in which {0} is its flag and {1} the other's."""

    others: tuple[str, ...]
    why: str = ""
    remedy: str = "give one of them"


class Kind:
    """One kind of engine. A new one inherits this class, overrides what it has, and is named in `registry.PLACES`.

    `shape` is a word for the data that a verb works on, one of `shapes`: a kind's options differ by it.
    """

    name: ClassVar[str] = ""
    engine: ClassVar[Engine] = "rows"
    """By which planners are listed (`planner/planners.py`)."""
    shapes: ClassVar[Mapping[Shape, str]] = {}
    """What plans of a shape are called in sentences, for example "plans of language models"."""
    lacks: ClassVar[Mapping[str, Mapping[str, Mapping[str, str]]]] = {}
    """By shape, verb and keyword: the remedy for an option that there is not; empty for "leave it out".

    Projects and records have no shape yet: theirs is empty.
    """

    needs: ClassVar[Mapping[Shape, Need]] = {}
    """By shape: the objectives of `plan`."""
    apart: ClassVar[Mapping[Shape, Mapping[str, Apart]]] = {}
    """By shape and option of `plan`: those that do not go with it."""
    what_if_on_files: ClassVar[tuple[Shape, ...]] = ()
    """Shapes that `what_if` plans for although a file has their devices."""
    fewest_for: ClassVar[tuple[Shape, ...]] = ()
    """Shapes whose plans use the fewest devices where a time and an accuracy are given, and no devices."""

    # Which kind it is: asked in the order of `KINDS`.

    def has_plan(self, plan: GearPlan) -> bool:
        return False

    def has_profile(self, profile: object) -> bool:
        """Whether this is a profile of the kind, or the folder of one."""
        return False

    def has_project(self, project: Path) -> bool:
        return False

    def has_records(self, folder: Path) -> bool:
        """Whether the folder holds what others recorded of engines of this kind."""
        return False

    def shape_of(self, of: object, *, beside: object = None) -> Shape:
        """The shape of a plan, a profile, or a sequence of profiles, which may be added to a plan `beside`."""
        return "one"

    def require_supported(self, verb: str, shape: Shape, given: Given, *, spelt: Callable[[str], str] = str) -> None:
        """Raise `InvalidInput` for the first option that the kind lacks; `spelt` makes a flag of a keyword."""
        lacking = self.lacks.get(shape, {}).get(verb, {})
        for keyword, value in given.items():
            if keyword in lacking and value not in (None, False, (), [], ""):
                flag = spelt(keyword)
                raise InvalidInput(
                    f"{flag} is given, which {self.shapes.get(shape, self.name)} do not have",
                    remedy=lacking[keyword] or f"leave {flag} out",
                )

    def without_lacking(self, verb: str, shape: Shape, options: Given) -> dict[str, Any]:
        """The options but for those that the kind lacks."""
        lacking = self.lacks.get(shape, {}).get(verb, {})
        return {name: value for name, value in options.items() if name not in lacking}

    # The verbs.

    def planners(self, shape: Shape) -> Sequence[str]:
        """The planners by name; the first is the default."""
        first = planners.default_for(self.engine, shape)
        return first, *(name for name in planners.for_(self.engine, shape) if name != first)

    def read_profile(self, shape: Shape, profiles: Sequence[Path]) -> Any:
        """The profile that `plan` takes; a mapping by operator where there are several."""
        return self._absent("plan")

    def plan(self, shape: Shape, profile: Any, trace: Any, *, planner: str, progress: Progress, **asked: Any) -> Any:
        """A plan, or with `frontier` a list of them; with `out`, sources are named by paths relative to it."""
        return self._absent("plan")

    def compare(self, shape: Shape, profile: Any, trace: Any, *, progress: Progress, asked: dict[str, Any]) -> Any:
        """`asked` has the arguments of the verb `compare`."""
        return self._absent("compare")

    def what_if(
        self, shape: Shape, made: GearPlan, profile: Any, trace: Any, *, progress: Progress, **asked: Any
    ) -> GearPlan:
        """The plan with predictions for other numbers of devices; `asked` is what it was planned for."""
        return self._absent("what_if")  # type: ignore[no-any-return]

    def inputs(self, plan: GearPlan | PathLike, **given: Any) -> Inputs:
        """The plan with its records: as given, or read from where the plan names them."""
        found: Inputs = self._absent("inputs")
        return found

    def answerable(self, records: Any, traces: Traces, *, plan: GearPlan | None = None) -> tuple[Traces, Sequence[str]]:
        """The traces with the requests that models can take, and sentences on what is left out.

        They are the models of a plan, or all those of a profile.
        """
        return traces, ()

    def simulate(self, inputs: Inputs, traces: Traces, **how: Any) -> Any:
        return self._absent("simulate")

    def explain(self, inputs: Inputs, traces: Traces, *, progress: Progress, **how: Any) -> Any:
        return self._absent("explain")

    def sections(
        self, path: PathLike, plan: GearPlan, traces: Traces, *, progress: Progress, notice: Notice, **how: Any
    ) -> list[Any]:
        """The sections of a page about the plan in the file `path`; without `traces` nothing is simulated."""
        return self._absent("report")  # type: ignore[no-any-return]

    def inspect(self, path: Path) -> Any:
        """Read and check a plan or a profile."""
        return self._absent("inspect")

    def diff(self, a: GearPlan, b: GearPlan) -> Any:
        """A `PlanDiff`, or by pipeline one or a word."""
        return self._absent("diff")

    def profile(self, project: Path, **how: Any) -> Any:
        """Measure a project; `how` is as of `gearshift.profile`."""
        return self._absent("profile")

    def profile_from_records(self, folder: Path, **how: Any) -> Any:
        return self._absent("profile --from-records")

    def require_light(self, project: Path) -> None:
        """Raise `InvalidInput` where models cannot be measured in seconds and planned, to be served at once."""
        require(False, f"has {self.name}", where=str(project), remedy=PROFILE_FIRST)

    def replay(self, target: PathLike, traces: Mapping[str, Any], **how: Any) -> Any:
        """Send traces to a plan or a URL: the figures by pipeline."""
        return self._absent("replay")

    def validate(self, plan: PathLike, traces: Mapping[str, Any], **how: Any) -> Any:
        """Serve, replay and simulate a plan: by pipeline what has its errors, `broken(...)` and `as_json()`."""
        return self._absent("validate")

    def served(self) -> "ServedKind[Any, Any]":
        """How a server serves plans of the kind; only then are its modules loaded."""
        served: ServedKind[Any, Any] = self._absent("serve")
        return served

    def _absent(self, verb: str) -> Any:
        require(False, f"{self.name} have no `{verb}`", remedy="see docs/design/kinds.md for what each kind has")
