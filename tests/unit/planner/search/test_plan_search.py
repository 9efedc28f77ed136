import dataclasses

from gearshift.planner import planners
from gearshift.planner.search.plan_search import holds_every_range
from tests.unit.planner.little import little_request


def test_a_plan_holds_the_margin_it_was_made_for_and_no_other() -> None:
    request = little_request(ranges=3, least_margin=1.0)
    made = planners.plan("optimal", request)
    assert holds_every_range(made, request)
    assert not holds_every_range(made, dataclasses.replace(request, least_margin=2.0))
    assert not holds_every_range(made, little_request(ranges=3, latency_s=1e-4))
