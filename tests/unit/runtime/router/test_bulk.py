"""Bulk work beside online requests, worked out by hand: which starts first, and where."""

from gearshift.decisions import Decision
from tests.conformance.small import small_gear, small_plan
from tests.unit.runtime.driven import Driven

ONE = {"a0": "d0"}
TWO_GEARS = (
    small_gear({"a0": "d0", "b0": "d0"}, "a b", [0.5], load=(0, 50)),
    small_gear({"a0": "d0", "b0": "d0"}, "b", load=(50, None)),
)


def test_online_samples_that_come_later_go_first() -> None:
    router = Driven(small_plan(ONE, small_gear(ONE, "a", largest=2)))
    router.arrive(1, 2, 3, 4, 5, bulk_gear=0)
    router.arrive(6, 7, ms=1)
    router.finish("a0", ms=2)
    router.finish("a0", ms=3)
    router.arrive(8, ms=4)
    router.finish("a0", ms=5)
    router.finish("a0", ms=6)
    router.finish("a0", ms=7)
    assert [samples for _, samples in router.started] == [[1, 2], [6, 7], [3, 4], [8], [5]]
    assert sorted(router.answered) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_bulk_work_moves_neither_meter_nor_backlog_and_keeps_its_gear() -> None:
    router = Driven(small_plan({"a0": "d0", "b0": "d0"}, *TWO_GEARS))
    router.arrive(*range(1, 51), bulk_gear=0)
    router.arrive(51, bulk_gear=1)
    pipeline = router.router.pipeline
    assert (pipeline.waiting, pipeline.meter.counted) == (0, (0, 0))
    router.router.tick(100_000_000)
    assert (pipeline.load, pipeline.gear) == (0.0, 0)
    while router.running:
        (replica,) = router.running
        router.finish(replica, ms=200, certainty=0.1)
    assert sorted(router.answered) == list(range(1, 52))
    answers = {row[2]: (router.tables.models[row[3]], row[4]) for row in router.log if row[1] == Decision.ANSWER}
    assert answers[51] == ("b", 1)  # which begins with b, although gear 0 is in force
    assert {answers[number] for number in range(1, 51)} == {("b", 0)}  # which a was not certain of


def test_bulk_work_goes_to_the_shortest_queue_whatever_the_shares_are() -> None:
    placed = {"a0": "d0", "a1": "d1"}
    router = Driven(small_plan(placed, small_gear(placed, "a", largest=1, shares={"a0": 1.0, "a1": 0.0})))
    router.arrive(1, 2, 3, 4, bulk_gear=0)
    assert router.started == [("a0", [1]), ("a1", [2])]
    router.finish("a1", ms=1)
    assert router.started[2:] == [("a1", [4])]


def test_bulk_work_of_a_lost_worker_goes_on_elsewhere_and_withdrawn_rows_leave() -> None:
    placed = {"a0": "d0", "a1": "d1"}
    router = Driven(small_plan(placed, small_gear(placed, "a", largest=1)))
    samples = router.arrive(*range(1, 9), bulk_gear=0)
    router.lose("a0", ms=1)
    router.router.cancel(samples[4:], 2)
    while router.running:
        (replica,) = router.running
        assert replica == "a1"
        router.finish(replica, ms=3)
    assert sorted(router.answered) == [1, 2, 3, 4]
    assert (router.router.pipeline.waiting, router.router._dispatch.bulk.waiting) == (0, 0)
