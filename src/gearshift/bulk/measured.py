"""The profiles of a plan's pipeline, its joint records, and the project with its models."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gearshift.bulk.workers import Source
from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.model import TensorSpec
from gearshift.models.config import project_file
from gearshift.plans.request_inputs import request_inputs
from gearshift.profiles.pipelines.of_plan import profile_of_plan
from gearshift.profiles.pipelines.profile_folder import read_tuples
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import TUPLES_FILE
from gearshift.profiles.tuples import JointRecords
from gearshift.support.files import PathLike


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A pipeline's operators by name, the tensors of its requests, and its joint records, if any."""

    sources: dict[str, Source]
    inputs: tuple[TensorSpec, ...]
    records: JointRecords | None = None
    is_graph: bool = False

    @property
    def profiles(self) -> dict[str, Profile]:
        return _profiles(self.sources)

    def outputs_of(self, operator: str) -> tuple[TensorSpec, ...]:
        return self.sources[operator].profile.outputs


def _profiles(sources: Mapping[str, Source]) -> dict[str, Profile]:
    return {operator: source.profile for operator, source in sources.items()}


def named_pipeline(plan: GearPlan, pipeline: str | None) -> str:
    """The pipeline of this name, or the only one."""
    names = list(plan.pipelines)
    require(
        pipeline in names if pipeline is not None else len(names) == 1,
        f"there is no pipeline {pipeline!r}" if pipeline is not None else "the plan has several pipelines",
        remedy=f"name one of {', '.join(names)}",
    )
    return pipeline or names[0]


def measured_of(
    plan: GearPlan,
    pipeline: str,
    folder: Path | None,
    profile: Profile | PathLike | None = None,
    project: PathLike | None = None,
) -> Measured:
    """Read what `profile` names, or the plan, which is in `folder`; raises `InvalidInput`."""
    nodes = plan.pipelines[pipeline].nodes
    if len(nodes) == 1:
        (node,) = nodes.values()
        measured, place = profile_of(plan, pipeline, folder, profile)
        sources = {node.operator: Source(measured, _project_of(measured, place, project))}
        return Measured(sources=sources, inputs=measured.inputs)
    if isinstance(profile, Profile):
        raise InvalidInput(
            f"one profile is given, and pipeline {pipeline!r} has several operators",
            remedy="name the folder with the profiles of all",
        )
    sources, folders = dict[str, Source](), dict[str, Path]()
    for operator in {node.operator: None for node in nodes.values()}:
        given = None if profile is None else Path(profile) / operator
        measured, place = profile_of_plan(plan, operator, folder, given)
        sources[operator] = Source(measured, _project_of(measured, place, project))
        folders[operator] = Path(str(place))
    planned = plan.pipelines[pipeline]
    recorded, profiles = folders[nodes[planned.output].operator].parent / pipeline, _profiles(sources)
    has_records = (recorded / TUPLES_FILE).is_file()
    records = read_tuples(recorded, nodes, planned.edges, profiles) if has_records else None
    inputs_of = {operator: source.profile.inputs for operator, source in sources.items()}
    inputs = request_inputs(nodes, inputs_of, where=f"pipeline {pipeline!r}")
    return Measured(sources=sources, inputs=inputs, records=records, is_graph=True)


def profile_of(
    plan: GearPlan, pipeline: str, folder: Path | None, profile: Profile | PathLike | None = None
) -> tuple[Profile, Path | None]:
    """The profile of the pipeline's only operator, and its folder; `folder` is the plan's."""
    nodes = list(plan.pipelines[pipeline].nodes)
    require(
        len(nodes) == 1,
        f"pipeline {pipeline!r} has the nodes {', '.join(nodes)}, and one is needed here",
        remedy="name a pipeline of one node",
    )
    (node,) = plan.pipelines[pipeline].nodes.values()
    return profile_of_plan(plan, node.operator, folder, profile)


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
