"""A frontier as a folder of plan files."""

from collections.abc import Sequence
from pathlib import Path

from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.plans.plan_file import encode_plan, read_plan
from gearshift.result import ServingResult
from gearshift.support.files import replace_folder
from gearshift.support.numbers import plain

PATTERN = "plan-*.json"


def plan_name(number: int) -> str:
    return f"plan-{number:03d}.json"


def require_plans_replaceable(folder: Path) -> None:
    if not folder.exists():
        return
    require(folder.is_dir(), "is a file, needs a folder", where=str(folder), remedy="choose another place")
    others = sorted({entry.name for entry in folder.iterdir()} - {path.name for path in folder.glob(PATTERN)})
    require(
        not others,
        f"the folder holds {others[0]!r}, which is no plan of a frontier, and would be replaced" if others else "",
        where=str(folder),
        remedy="choose a new or empty folder, or move its files away",
    )


def write_plans(plans: Sequence[GearPlan], folder: Path) -> list[Path]:
    """Write the plans into `folder`, replacing its content whole or not at all."""
    require_plans_replaceable(folder)
    replace_folder(folder, {plan_name(i): encode_plan(plan) for i, plan in enumerate(plans)})
    return [folder / plan_name(i) for i in range(len(plans))]


def read_plans(folder: Path) -> dict[Path, GearPlan]:
    """Read the plans in `folder` by path; raises `InvalidInput` where there are none."""
    plans = {path: read_plan(path) for path in sorted(folder.glob(PATTERN))}
    require(
        bool(plans),
        f"no plans ({PATTERN}) in it",
        where=str(folder),
        remedy="make some with `gearshift plan --frontier`",
    )
    return plans


def choose_plan(folder: Path, *, latency_s: float | None = None, accuracy: float | None = None) -> Path:
    """Choose the most accurate plan within `latency_s`, or else the fastest with `accuracy`.

    Latency is the upper end of the predicted p95's interval; if both objectives are given, both
    must be met. Raises `InvalidInput` where the folder has no plans, neither is given, or no plan
    meets them.
    """
    Objective(latency_s=latency_s, accuracy=accuracy)  # refuses bad ones
    plans = read_plans(folder)
    require(
        latency_s is not None or accuracy is not None,
        "is a folder of plans",
        where=str(folder),
        remedy="choose one of them with --p95-ms or --accuracy",
    )
    several = next((path for path, plan in plans.items() if len(plan.pipelines) > 1), None)
    require(
        several is None,
        "is a plan of several pipelines, and one of a folder is chosen by the objective of its only pipeline",
        where=str(several),
        remedy="name the plan file",
    )
    predicted = {path: plan.predictions.get(plan.name) for path, plan in plans.items()}
    known = {path: result for path, result in predicted.items() if result is not None}
    require(bool(known), "the plans predict nothing", where=str(folder), remedy="name one of them")
    meets = [
        path
        for path, result in known.items()
        if (latency_s is None or latency_bound_s(result) <= latency_s)
        and (accuracy is None or result.accuracy >= accuracy)
    ]
    if not meets:
        fastest = min(latency_bound_s(result) for result in known.values())
        best = max(result.accuracy for result in known.values())
        raise InvalidInput(
            f"none of its plans meets the objective: their lowest p95 is {plain(fastest * 1e3)} ms and their highest "
            f"accuracy {best:.4g}",
            where=str(folder),
            remedy="ask for less, or plan for more devices",
        )
    if latency_s is not None:
        return max(meets, key=lambda path: (known[path].accuracy, -latency_bound_s(known[path])))
    return min(meets, key=lambda path: (latency_bound_s(known[path]), -known[path].accuracy))


def latency_bound_s(result: ServingResult) -> float:
    """The p95 in seconds: the upper end of its interval where there is one."""
    interval = result.latency_p95_interval_s
    return result.latency_s.p95 if interval is None else interval[1]
