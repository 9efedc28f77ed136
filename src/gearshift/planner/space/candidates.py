"""The candidates of restricted planners, by rising work, from models that fit on some device."""

from gearshift.cascade import Cascade
from gearshift.planner.space.cascade_search import (
    CandidateCascade,
    evaluate_cascade,
    pareto_cascades,
    work_per_request_s,
)
from gearshift.planner.space.hosts import hosts_of
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_A


def single_models(request: PlanRequest) -> list[CandidateCascade]:
    work_s = _work_of_fitting_models(request)
    by_work = sorted(work_s, key=lambda m: (work_s[m], m))
    records = request.profile.predictions
    return [evaluate_cascade(Cascade(models=(m,)), records, work_s, part=PART_A) for m in by_work]


def cascade_front(request: PlanRequest) -> list[CandidateCascade]:
    return pareto_cascades(request.profile, _work_of_fitting_models(request), most=request.most_candidates)


def _work_of_fitting_models(request: PlanRequest) -> dict[str, float]:
    profile, hardware = request.profile, request.hardware
    fitting = {model for host in hosts_of(profile, hardware) for model in host.seconds}
    work_s = work_per_request_s(profile, hardware.devices[0])
    return {model: seconds for model, seconds in work_s.items() if model in fitting}
