"""What deadlines decide, worked out by hand: a on d0 takes 4 ms and 1 ms for each sample, b on d1 10 and 1."""

from typing import Any

import pytest

from gearshift.clock import NEVER_NS
from gearshift.decisions import Ending
from gearshift.gear import GearPlan
from gearshift.plans.plan_tables import plan_tables
from gearshift.request import LEAST_URGENT, Late, Sample
from gearshift.runtime.router.by_deadline import DeadlineRules
from tests.conformance.plans import MS
from tests.conformance.small import small_gear, small_plan
from tests.unit.runtime.driven import Driven

PLACED = {"a0": "d0", "b0": "d1"}


def driven(plan: GearPlan | None = None, late: Late = "refuse", **gear: Any) -> Driven:
    plan = plan or small_plan(PLACED, small_gear(PLACED, "a b", (0.5,), **gear))
    tables = plan_tables(plan)
    first_ms = {"a": 4, "b": 10}
    run_ns = [[(first_ms[replica[0]] + size) * MS for size in range(17)] for replica in tables.replica_ids]
    return Driven(plan, deadlines=DeadlineRules(tables, run_ns, late))


def arrive(world: Driven, sequence: int, deadline_ms: float, ms: float = 0, **request: Any) -> Sample:
    return world.arrive(sequence, ms=ms, deadline_ns=int(deadline_ms * MS), **request)[0]


def test_a_batch_is_no_larger_than_its_tightest_deadline_allows() -> None:
    world = driven()
    arrive(world, 0, 100)
    for sequence, deadline_ms in ((1, 11), (2, 40), (3, 41)):  # 1 may run with one other from 5 to 11
        arrive(world, sequence, deadline_ms, ms=1)
    world.finish("a0", 5)
    assert world.started[1:] == [("a0", [1, 2])]


def test_a_deadline_that_only_the_operator_gave_limits_and_drops_nothing() -> None:
    world = driven()
    arrive(world, 0, 100)
    for sequence in (1, 2, 3):
        world.arrive(sequence, ms=1, answer_by_ns=2 * MS)
    world.finish("a0", 5)
    assert world.started[1:] == [("a0", [1, 2, 3])]


def test_what_no_replica_could_answer_in_time_is_refused_at_arrival() -> None:
    world = driven()
    refused = arrive(world, 0, 4.9)
    assert (refused.ending, world.answered, world.started) == (Ending.INFEASIBLE, [0], [])
    arrive(world, 1, 5)
    refused = arrive(world, 2, 9, ms=1)  # d0 is free at 5, and one sample takes 5
    kept = arrive(world, 3, 10, ms=1)
    assert (refused.ending, kept.ending, world.answered) == (Ending.INFEASIBLE, Ending.ANSWERED, [0, 2])


def test_a_request_is_refused_as_soon_as_it_cannot_be_answered_in_time_while_devices_are_busy() -> None:
    world = driven()
    arrive(world, 0, 100)
    late = arrive(world, 1, 10, ms=1)
    assert world.router.next_timer_ns() == 5 * MS + 1
    world.router.timer(5 * MS)
    assert world.answered == []
    world.router.timer(5 * MS + 1)  # the batch before takes longer than it should
    assert (world.answered, late.ending, world.router.waiting) == ([1], Ending.INFEASIBLE, 0)
    assert late.error.startswith("infeasible: ")
    assert world.router.next_timer_ns() == NEVER_NS


def test_who_comes_to_the_front_because_another_is_withdrawn_is_refused_in_time() -> None:
    world = driven()
    arrive(world, 0, 100)
    head, second = arrive(world, 1, 10, ms=1), arrive(world, 2, 20, ms=1)
    world.router.cancel([head], 2 * MS)
    assert world.router.next_timer_ns() == 15 * MS + 1
    world.router.cancel([second], 2 * MS)
    assert world.router.next_timer_ns() == NEVER_NS


def test_a_request_behind_a_more_urgent_class_is_dropped_when_it_comes_to_the_front() -> None:
    world = driven(largest=1)
    arrive(world, 0, 100)
    arrive(world, 1, 100, ms=1, priority=1)
    hidden = arrive(world, 2, 11, ms=1, priority=2)
    world.finish("a0", 12)
    assert world.started[1:] == [("a0", [1])]
    world.router.timer(12 * MS)
    assert (hidden.ending, world.answered) == (Ending.EXPIRED_IN_QUEUE, [0, 2])


def test_a_batch_that_waits_for_others_starts_in_time_for_its_deadline() -> None:
    world = driven(minimum=4, wait_ms=50)
    arrive(world, 0, 30)
    assert world.router.next_timer_ns() == 24 * MS
    arrive(world, 1, 40, ms=1)
    assert world.router.next_timer_ns() == 23 * MS
    world.router.timer(23 * MS + MS // 2)  # a timer is late
    assert world.started == [("a0", [0, 1])]


def test_a_sample_forwards_only_where_the_next_model_can_answer_in_time() -> None:
    world = driven()
    in_time, late = arrive(world, 0, 16), arrive(world, 1, 15.9)
    assert world.started == [("a0", [0])]
    world.finish("a0", 5, certainty=0)  # b takes 11
    world.finish("a0", 10, certainty=0)
    assert ("b0", [0]) in world.started
    assert (late.degraded_by, late.stage, late.model) == ("deadline", 0, world.tables.models.index("a"))
    assert (in_time.degraded_by, world.answered) == ("", [1])


def test_a_sample_that_waits_for_a_later_stage_in_vain_gets_its_answer_so_far() -> None:
    world = driven()
    arrive(world, 0, 100)
    late = arrive(world, 1, 30)
    world.finish("a0", 5, certainty=0)
    world.finish("a0", 10, certainty=0)  # b runs 0 from 5 to 16
    world.router.timer(19 * MS)
    assert world.answered == []
    world.router.timer(19 * MS + 1)
    assert (world.answered, late.degraded_by, late.error) == ([1], "deadline", "")


def test_where_late_answers_are_wanted_only_answers_so_far_are_given_early() -> None:
    world = driven(late="answer")
    late = arrive(world, 0, 1)
    assert (late.ending, world.started) == (Ending.ANSWERED, [("a0", [0])])
    waits = arrive(world, 1, 3, ms=1)
    assert world.router.next_timer_ns() == NEVER_NS
    world.finish("a0", 5, certainty=0)
    assert (late.degraded_by, world.answered) == ("deadline", [0])
    assert world.started[1:] == [("a0", [1])]
    assert not waits.error


def test_urgent_samples_give_way_to_a_whole_batch_that_would_miss_its_deadlines_behind_them() -> None:
    world = driven(largest=16)
    arrive(world, 0, 100)
    arrive(world, 1, 10, ms=1)
    for sequence in range(2, 22):
        arrive(world, sequence, 26, ms=1)
    world.finish("a0", 5)  # a whole batch takes 20
    assert world.started[1:] == [("a0", list(range(2, 18)))]
    assert world.answered == [0, 1]


@pytest.mark.parametrize("rows", [1, 3])
def test_a_request_is_refused_whole(rows: int) -> None:
    world = driven()
    samples = world.arrive(*range(rows), deadline_ns=MS)
    assert [sample.ending for sample in samples] == [Ending.INFEASIBLE] * rows
    assert world.router.waiting == 0


def test_other_run_times_count_at_once_for_who_waits_and_who_comes() -> None:
    world = driven()
    queues = world.router.by_deadline
    assert queues is not None
    arrive(world, 0, 100)
    arrive(world, 1, 10, ms=1)
    assert queues.waiting(0, 1 * MS) == ([(1 * MS, 10 * MS)], 5 * MS)
    queues.take_run_times(0, [(1 + size) * MS for size in range(17)], 2 * MS)
    assert world.router.next_timer_ns() == 8 * MS + 1
    kept = arrive(world, 2, 7.5, ms=2)
    queues.take_run_times(0, [(20 + size) * MS for size in range(17)], 3 * MS)
    refused = arrive(world, 3, 20, ms=3)
    world.router.timer(3 * MS)
    assert (kept.ending, refused.ending) == (Ending.INFEASIBLE, Ending.INFEASIBLE)
    assert sorted(world.answered) == [1, 2, 3]


def on_one_device(deadline_ms: float, minimum: int = 1, **second: Any) -> tuple[Driven, Sample]:
    """Sample 0, due at 19, comes back from a at 5 and may go on to b until 16; sample 1, due later, waits for a."""
    placed = {"a0": "d0", "b0": "d0"}
    world = driven(small_plan(placed, small_gear(placed, "a b", (0.5,), minimum={"a0": minimum}, wait_ms=1)))
    first = arrive(world, 0, 19)
    world.router.timer(1 * MS)
    arrive(world, 1, deadline_ms, ms=4.5, **second)
    world.finish("a0", 5, certainty=0.0)
    return world, first


def test_samples_without_an_answer_go_before_a_batch_that_would_cost_them_theirs() -> None:
    world, first = on_one_device(20)  # after b it would be done at 21
    assert world.started[1:] == [("a0", [1])]
    world.finish("a0", 10)
    assert (world.answered, first.degraded_by) == ([1, 0], "deadline")
    world, _ = on_one_device(21)
    assert world.started[1:] == [("b0", [0])]


def test_they_do_so_although_their_batch_is_not_full_but_not_before_a_more_urgent_class() -> None:
    assert on_one_device(20, minimum=4)[0].started[1:] == [("a0", [1])]
    assert on_one_device(20, priority=LEAST_URGENT + 1)[0].started[1:] == [("b0", [0])]


# The margin --------------------------------------------------------------------------------------------------------


def overshot(world: Driven, ms: int) -> None:
    for _ in range(100):
        rules_of(world).written(5 * MS, (5 + ms) * MS)
    rules_of(world).take_aim(idle=False)


def rules_of(world: Driven) -> DeadlineRules:
    assert world.deadlines is not None
    return world.deadlines


def test_batches_aim_as_long_before_deadlines_as_answers_lately_came_late() -> None:
    world = driven()
    overshot(world, 3)
    refused, kept = arrive(world, 0, 7.9), arrive(world, 1, 8)
    assert (refused.ending, kept.ending, world.started) == (Ending.INFEASIBLE, Ending.ANSWERED, [("a0", [1])])
    for sequence, deadline_ms in ((2, 14), (3, 40), (4, 41)):  # with a margin 2 may run with one other from 5 to 11
        arrive(world, sequence, deadline_ms, ms=1)
    world.finish("a0", 5)
    assert world.started[1:] == [("a0", [2, 3])]


def test_a_margin_that_refuses_everything_is_forgotten_while_nothing_runs() -> None:
    world = driven()
    overshot(world, 50)
    assert arrive(world, 0, 40).ending == Ending.INFEASIBLE
    for _ in range(10):
        rules_of(world).take_aim(idle=True)
    assert rules_of(world).margin_ns == 0
    assert arrive(world, 1, 40).ending == Ending.ANSWERED


def test_without_deadlines_a_margin_decides_nothing() -> None:
    world = driven()
    overshot(world, 50)
    world.arrive(0)
    world.arrive(1, 2, ms=1)
    world.finish("a0", 5)
    assert world.started == [("a0", [0]), ("a0", [1, 2])]
