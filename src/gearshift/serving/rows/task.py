"""A serving task: a plan with its tables, profiles and projects, read from their files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan, PipelinePlan
from gearshift.model import TensorSpec
from gearshift.models.config import project_file
from gearshift.plans.plan_tables import PlanTables, plan_tables
from gearshift.plans.request_inputs import request_inputs
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import run_times_ns
from gearshift.profiles.several import as_one
from gearshift.runtime.backends.emulated import EMULATED_INPUTS, emulated_outputs
from gearshift.runtime.backends.local import assign_cores, available_cores, router_cores
from gearshift.runtime.cores.local_cores import pooled_cores
from gearshift.serving.door.signature import Signature
from gearshift.serving.operate.kind import BackendKind, Task, profile_to_serve, read_plan_to_serve


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedOperator:
    """An operator's profile, its folder, and the project of its models; None if they are emulated."""

    profile: Profile
    folder: Path
    project: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingTask(Task):
    """A plan of `operators`, by name.

    `device_cores` are the devices' processors, if these are on this machine, `pool` those that a
    scaler distributes.
    """

    tables: PlanTables
    backend: BackendKind
    operators: Mapping[str, ServedOperator]
    device_cores: dict[str, frozenset[int]] | None
    pool: tuple[int, ...] = ()

    @property
    def profiles(self) -> dict[str, Profile]:
        return {name: operator.profile for name, operator in self.operators.items()}

    @property
    def profile(self) -> Profile:
        """The profiles of all operators as one, for what is looked up by model."""
        return as_one(self.profiles)

    @property
    def projects(self) -> dict[str, Path]:
        """The project of each operator; empty if they are emulated."""
        return {name: each.project for name, each in self.operators.items() if each.project is not None}

    @property
    def run_ns(self) -> list[list[int]]:
        """Profiled nanoseconds (replicas, sizes); raises `InvalidInput` for larger batches."""
        run_ns: list[list[int]] = run_times_ns(self.plan, self.tables, self.profile).tolist()
        return run_ns


def read_task(
    plan_path: Path,
    backend: BackendKind,
    *,
    profile_path: Path | None = None,
    project_path: Path | None = None,
    available: Sequence[int] | None = None,
    scaled: bool = False,
    core_share: float = 1.0,
) -> ServingTask:
    """Read the plan with its profiles and projects, for the `available` processors.

    By default these are all of this process.  `profile_path` is the folder of the profile, or with
    several operators one that has a folder of each operator's name.  If cores change, by a scaler
    (`scaled`) or with the gears, each core of the profile is `core_share` of a processor.  Raises
    `InvalidInput` if a file is missing or does not fit.
    """
    plan, served = read_plan_to_serve(plan_path)
    tables = plan_tables(plan)
    emulated = backend == "emulated"
    operators = {}
    for name in plan.profiles:
        profile, folder = profile_to_serve(plan, plan_path, name, profile_path)
        project = None if emulated else _project(folder, profile, project_path)
        operators[name] = ServedOperator(profile=profile, folder=folder, project=project)
    pooled = scaled or plan.hardware.pool_cores is not None
    require(
        pooled or core_share == 1.0,
        f"a core is to be {core_share:g} of a processor, and nothing changes cores",
        remedy="serve with --scaler exact, which holds shares by quotas",
    )
    device_cores, pool, router = _processors(plan, backend, available, core_share if pooled else None)
    return ServingTask(
        served=served,
        plan=plan,
        tables=tables,
        backend=backend,
        operators=operators,
        signatures=tuple(
            signature_of(name, pipeline, operators, emulated=emulated, where=str(plan_path))
            for name, pipeline in plan.pipelines.items()
        ),
        device_cores=device_cores,
        router_cores=router,
        pool=pool,
    )


def signature_of(
    name: str, pipeline: PipelinePlan, operators: Mapping[str, ServedOperator], *, emulated: bool, where: str
) -> Signature:
    profile = operators[pipeline.nodes[pipeline.output].operator].profile
    inputs: tuple[TensorSpec, ...] = EMULATED_INPUTS if emulated else profile.inputs
    if not emulated and len(pipeline.nodes) > 1:
        taken = {operator: one.profile.inputs for operator, one in operators.items()}
        inputs = request_inputs(pipeline.nodes, taken, where=f"{where}, pipeline {name!r}")
    return Signature(
        name=name,
        inputs=inputs,
        outputs=emulated_outputs(profile) if emulated else profile.outputs,
    )


def _processors(
    plan: GearPlan, backend: BackendKind, available: Sequence[int] | None, core_share: float | None
) -> tuple[dict[str, frozenset[int]] | None, tuple[int, ...], frozenset[int] | None]:
    if backend != "local":
        return None, (), None
    if core_share is not None:
        return pooled_cores(plan.hardware, available or available_cores(), core_share)
    return assign_cores(plan.hardware, available), (), router_cores(plan.hardware, available)


def _project(folder: Path, profile: Profile, given: Path | None) -> Path:
    if given is None and profile.project is None:
        raise InvalidInput(
            "the profile was imported and names no project whose models could be loaded",
            where=str(folder),
            remedy="serve with --backend emulated, or name a project",
        )
    path = project_file(given or folder / str(profile.project)).resolve()
    require(path.is_file(), "no such file", where=str(path), remedy="name the project whose models were profiled")
    return path
