"""What one server needs of a kind of plan: how its plans are read, refused, put to work and shown."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import msgspec

from gearshift.clock import WallClock
from gearshift.errors import ModelFailed, require
from gearshift.gear import GearPlan
from gearshift.model import require_name
from gearshift.observability.journal import Journal
from gearshift.observability.recent_events import RecentEvents
from gearshift.observability.tracing import Tracing
from gearshift.plans.plan_file import read_plan
from gearshift.profiles.pipelines.of_plan import profile_of_plan
from gearshift.profiles.store import read_profile
from gearshift.runtime.router.status import ServedPlan
from gearshift.runtime.service.room import Unsent
from gearshift.runtime.watch.drift import LiveTrace
from gearshift.serving.door.deadline_headers import SendingTimes
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.signature import Signature
from gearshift.serving.operate.control import Operated
from gearshift.serving.operate.shadow import Shadow
from gearshift.serving.operate.start_progress import Ready
from gearshift.support.files import read_bytes

BackendKind = Literal["local", "emulated", "ray"]
Loading = tuple[str, Ready, float]
"""The sentence of a start that takes time, for its two numbers, and how long it is expected to take (0: unknown)."""
MetricsT = TypeVar("MetricsT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A plan with everything needed to serve it.

    `served` names the plan's file; `signatures` are those of the pipelines that are asked in tensors, in the plan's
    order. `router_cores` are the processors that it leaves to this process, if it keeps to some on this machine.
    """

    served: ServedPlan
    plan: GearPlan
    signatures: tuple[Signature, ...] = ()
    router_cores: frozenset[int] | None = None


TaskT = TypeVar("TaskT", bound=Task)


@dataclass(slots=True, kw_only=True)
class Shared(Generic[MetricsT]):
    """The parts of a server that go on when its plan is swapped."""

    settings: ServerSettings
    metrics: MetricsT
    times: SendingTimes
    journal: RecentEvents
    tracing: Tracing | None
    clock: WallClock
    unsent: Unsent
    drifted: Callable[[], None] = lambda: None
    """Called while load has drifted."""


class Shown(NamedTuple):
    """A pipeline as people see it: about it in HTML, and the path and body of a request that works."""

    name: str
    about: str
    path: str
    body: Any
    is_long: bool = False
    """Whether the body is too long for a line."""


class Deployment(ABC, Generic[TaskT]):
    """A plan with its service and what that runs on, which may serve beside another one or take its place."""

    task: TaskT
    operated: Operated

    @property
    @abstractmethod
    def loading(self) -> Loading | None:
        """None if it is started at once."""

    @abstractmethod
    async def start(self) -> None:
        """Load the models, or start the engines; raises `ModelFailed` or `WorkerDied` with nothing left running."""

    def serve(self) -> None:
        """Let requests in, once started; the first deployment of a server does."""

    async def trial(self) -> None:
        """Raise `ModelFailed` if it could not take another's place."""
        self.require_ready()

    def require_ready(self) -> None:
        """Raise `ModelFailed` unless every replica answers."""
        status = self.operated.status(self.task.served)
        lacking = [replica.id for replica in status.replicas if replica.failing or not replica.ready]
        if lacking:
            raise ModelFailed(f"its replicas {lacking} have no worker, or do not answer")

    @abstractmethod
    def take_over_from(self, before: Any) -> None:
        """Take over the load, metrics and arrivals of `before`, and serve."""

    @abstractmethod
    async def stop(self) -> None:
        """End at once: unanswered requests fail, and nothing that is this one's alone is left running."""

    @property
    @abstractmethod
    def traces(self) -> Mapping[str, LiveTrace]:
        """The arrivals of each pipeline."""

    def shadows(self, share: float) -> Mapping[str, Shadow]:
        """For each pipeline what sends this deployment copies of a share of the requests."""
        return {}


class ServedKind(ABC, Generic[TaskT, MetricsT]):
    """All that differs between servers of plans of different kinds; `docs/design/kinds.md` has a table of it."""

    plural: ClassVar[str]
    """Names such plans in refusals."""
    lacks: ClassVar[frozenset[str]] = frozenset()
    """Settings, and fields of requests to operate, that such plans are served without."""
    unit: ClassVar[str] = "sample"
    """What waits in queues."""
    path: ClassVar[str] = ""
    """Where the protocol begins that the kind is asked in."""

    def require_has(self, asked: msgspec.Struct) -> None:
        """Raise `InvalidInput` if something is asked for that such plans are served without."""
        for field in msgspec.structs.fields(asked):
            value = getattr(asked, field.name)
            require(
                field.name not in self.lacks or value == field.default,
                f"{field.name} is {value!r}, and {self.plural} are served without",
                remedy="leave it out",
            )

    def fitted(self, settings: ServerSettings) -> tuple[ServerSettings, str]:
        """The settings as this process can hold them, and why they are others than given."""
        return settings, ""

    @abstractmethod
    def read_task(
        self,
        plan_path: Path,
        *,
        settings: ServerSettings,
        backend: BackendKind,
        profile_path: Path | None = None,
        project_path: Path | None = None,
    ) -> TaskT:
        """Raises `InvalidInput` where a file is missing or does not fit."""

    def doubts(self, task: TaskT) -> Iterable[str]:
        """Warnings about a task that can be served nevertheless."""
        return ()

    @abstractmethod
    def require_compatible(self, before: TaskT, after: TaskT, where: str) -> None:
        """Raise `InvalidInput` unless `after` may take the place of `before`, `SwapFailed` if it cannot now."""

    @abstractmethod
    def metrics(self, task: TaskT) -> MetricsT: ...

    @abstractmethod
    def deploy(self, task: TaskT, shared: Shared[MetricsT], journal: Journal, before: Any = None) -> Deployment[TaskT]:
        """Make a deployment, not started; `before` is the one in force that it may take over from."""

    def routes(self, deployment: Any) -> Sequence[Any]:
        """The HTTP routes of a protocol of the kind's own, with their handlers."""
        return ()

    @abstractmethod
    def shown(self, task: TaskT) -> Sequence[Shown]: ...

    @abstractmethod
    def placed(self, task: TaskT) -> str:
        """How many replicas there are, in words."""


# For reading tasks ---------------------------------------------------------------------------------


def read_plan_to_serve(path: Path) -> tuple[GearPlan, ServedPlan]:
    plan = read_plan(path)
    for name in plan.pipelines:
        require_name(name, "a pipeline", where=str(path))
    return plan, ServedPlan(path=str(path), sha256=sha256(read_bytes(path)).hexdigest())


def profile_to_serve(
    plan: GearPlan, plan_path: Path, operator: str, given: Path | None, read: Callable[..., Any] = read_profile
) -> tuple[Any, Path]:
    """An operator's profile and its folder: `given`, or one in it where the plan has several operators."""
    if given is not None and len(plan.profiles) > 1:
        given = given / operator
    profile, place = profile_of_plan(plan, operator, plan_path.parent, given, read=read, where=str(plan_path))
    return profile, Path(str(place))
