"""Read a plan to serve, and find the profiles that it was made from."""

from hashlib import sha256
from pathlib import Path

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.models.config import require_name
from gearshift.plans.plan_file import read_plan
from gearshift.runtime.router.status import ServedPlan
from gearshift.support.files import read_bytes


def read_plan_to_serve(path: Path) -> tuple[GearPlan, ServedPlan]:
    plan = read_plan(path)
    for name in plan.pipelines:
        require_name(name, "a pipeline", where=str(path))
    return plan, ServedPlan(path=str(path), sha256=sha256(read_bytes(path)).hexdigest())


def profile_folder(plan: GearPlan, plan_path: Path, operator: str, given: Path | None) -> Path:
    """The folder of an operator's profile: `given`, or one in it where the plan has several operators."""
    if given is None:
        return plan_path.parent / plan.profiles[operator].path
    return given if len(plan.profiles) == 1 else given / operator


def require_made_from(plan: GearPlan, plan_path: Path, operator: str, sha256: str, folder: Path) -> None:
    require(
        sha256 == plan.profiles[operator].sha256,
        f"the plan was made from another profile than the one in {folder}",
        where=str(plan_path),
        remedy="make the plan anew with `gearshift plan`, or name its profile",
    )
