"""Lost replicas: who runs again, with whom, and who is answered how."""

from collections.abc import Sequence
from typing import Any

import pytest

from gearshift.clock import NEVER_NS
from gearshift.gear import GearPlan
from gearshift.plans.plan_tables import plan_tables
from gearshift.request import NO_DEADLINE_NS, Sample
from gearshift.runtime.faults.retries import Retries
from tests.conformance.plans import MS
from tests.conformance.small import small_gear, small_plan
from tests.unit.runtime.driven import Driven

ONE = {"a0": "d0"}
PAIR = {"a0": "d0", "a1": "d1"}
CASCADE = {"a0": "d0", "b0": "d1"}
LONGEST_RETRY_MS = 1000


class Bench(Driven):
    """Batches take 10 ms by the profile; `killers` end every worker that runs them."""

    def __init__(self, plan: GearPlan, *, killers: Sequence[int] = (), refuse: bool = False) -> None:
        tables = plan_tables(plan)
        retries = Retries(
            tables.models,
            run_ns=[[10 * MS] * 40] * len(tables.replica_ids),
            longest_retry_ns=LONGEST_RETRY_MS * MS,
            refuse_lost_stage=refuse,
        )
        super().__init__(plan, retries)
        self.samples: dict[int, Sample] = {}
        self.killers = set(killers)
        self.deaths = 0

    def arrive(self, *sequences: int, ms: float = 0, **request: Any) -> list[Sample]:
        samples = super().arrive(*sequences, ms=ms, **request)
        self.samples |= {sample.sequence: sample for sample in samples}
        return samples

    def wake(self, ms: float) -> None:
        self.router.timer(int(ms * MS))

    def run_to_the_end(self, ms: float) -> None:
        """End every batch; one with a killer ends its worker, which is back at once."""
        while self.running:
            name, samples = next(iter(self.running.items()))
            if self.killers & {sample.sequence for sample in samples}:
                self.deaths += 1
                self.lose(name, ms=ms)
                self.ready(name, ms)
            else:
                self.finish(name, ms)

    def errors(self) -> dict[int, str]:
        return {number: sample.error for number, sample in self.samples.items() if sample.error}


# Running again --------------------------------------------------------------------------------------------------------


def test_what_a_lost_replica_ran_runs_again_on_another_in_halves_and_apart_from_what_waits() -> None:
    shares = {"a0": 1.0, "a1": 0.0}
    bench = Bench(small_plan(PAIR, small_gear(PAIR, "a", shares=shares)))
    bench.arrive(0, 1, 2)
    bench.arrive(3, 4, ms=1)
    bench.lose("a0", ms=2)
    bench.finish("a1", 3)
    bench.finish("a1", 4)
    bench.finish("a1", 5)
    assert bench.started == [("a0", [0, 1, 2]), ("a1", [0, 1]), ("a1", [2]), ("a1", [3, 4])]
    assert sorted(bench.answered) == [0, 1, 2, 3, 4]
    assert bench.errors() == {}


def test_what_only_waited_moves_to_another_replica_and_that_counts_as_no_attempt() -> None:
    shares = {"a0": 1.0, "a1": 0.0}
    bench = Bench(small_plan(PAIR, small_gear(PAIR, "a", shares=shares)))
    bench.arrive(0)
    waiting = bench.arrive(1, 2, ms=1)
    bench.lose("a0", ms=2)
    assert bench.router.queue_lengths() == [0, 2]
    assert [sample.attempt for sample in waiting] == [1, 1]
    assert bench.samples[0].attempt == 2


def test_without_another_replica_both_wait_until_theirs_is_back() -> None:
    bench = Bench(small_plan(ONE, small_gear(ONE, "a", largest=1)))
    bench.arrive(0)
    bench.arrive(1, ms=1)
    bench.lose("a0", ms=2)
    assert (bench.answered, bench.router.waiting, bench.router.queue_lengths()) == ([], 2, [0])
    bench.ready("a0", 50)
    bench.finish("a0", 51)
    bench.finish("a0", 52)
    assert bench.started == [("a0", [0]), ("a0", [0]), ("a0", [1])]
    assert (bench.answered, bench.errors(), bench.router.waiting) == ([0, 1], {}, 0)


def test_nothing_starts_on_the_other_replicas_of_a_lost_worker() -> None:
    placed = {"a0": "d0", "b0": "d0"}
    low = small_gear(placed, "a b", (0.5,), minimum={"b0": 2}, wait_ms={"b0": 5})
    bench = Bench(small_plan(placed, low))
    bench.arrive(0)
    bench.finish("a0", 1, certainty=0.0)  # waits for b0 until 6 ms
    bench.lose("a0", "b0", ms=6)
    assert bench.started == [("a0", [0])]
    assert bench.samples[0].degraded_by == "no worker of model 'b' is running"


def test_queue_and_run_times_count_on_over_a_loss() -> None:
    bench = Bench(small_plan(ONE, small_gear(ONE, "a", largest=1)))
    bench.arrive(0)
    (waited,) = bench.arrive(1, ms=1)
    bench.lose("a0", ms=4)
    bench.ready("a0", 50)
    bench.finish("a0", 55)
    bench.finish("a0", 57)
    ran = bench.samples[0]
    assert (ran.queue_ns, ran.run_ns) == (46 * MS, 9 * MS)
    assert (waited.queue_ns, waited.run_ns) == (54 * MS, 2 * MS)


def test_a_client_s_deadline_that_leaves_no_time_for_another_run_ends_it() -> None:
    bench = Bench(small_plan(PAIR, small_gear(PAIR, "a", largest=1)))
    bench.arrive(0, deadline_ns=12 * MS)  # to run again takes 10 ms
    bench.arrive(1, deadline_ns=13 * MS)
    bench.lose("a0", ms=3)
    assert bench.errors() == {0: "the worker of model 'a' ended while it ran this request; try again later"}
    bench.lose("a1", ms=3)
    bench.ready("a0", 3)
    assert bench.started[-1] == ("a0", [1])


def test_a_deadline_that_only_the_objective_gave_ends_nothing() -> None:
    bench = Bench(small_plan(PAIR, small_gear(PAIR, "a")))
    bench.arrive(0, answer_by_ns=5 * MS)
    bench.lose("a0", ms=3)
    assert bench.started[-1] == ("a1", [0])


@pytest.mark.parametrize(("deadline_ns", "over_ms"), [(NO_DEADLINE_NS, LONGEST_RETRY_MS + 2), (212 * MS, 202)])
def test_who_waits_for_a_worker_in_vain_is_told_so_when_its_time_is_over(deadline_ns: int, over_ms: int) -> None:
    bench = Bench(small_plan(ONE, small_gear(ONE, "a", largest=1)))
    bench.arrive(0, deadline_ns=deadline_ns)
    bench.lose("a0", ms=2)
    assert bench.router.next_timer_ns() == over_ms * MS + 1
    bench.wake(over_ms)
    assert bench.answered == []
    bench.router.timer(over_ms * MS + 1)
    assert bench.errors() == {
        0: "the worker that held this request ended, and no other was free in time; try again later"
    }
    assert (bench.answered, bench.router.waiting, bench.router.next_timer_ns()) == ([0], 0, NEVER_NS)


def test_a_sample_that_arrives_without_any_replica_waits_for_one() -> None:
    bench = Bench(small_plan(ONE, small_gear(ONE, "a")))
    bench.lose("a0", ms=0)
    bench.arrive(0, ms=1)
    assert (bench.answered, bench.router.waiting) == ([], 1)
    bench.ready("a0", 5)
    assert bench.started == [("a0", [0])]


def test_whoever_waits_for_a_lost_model_goes_to_the_first_of_the_next_gear() -> None:
    low = small_gear(CASCADE, "a", load=(0.0, 5.0))
    high = small_gear(CASCADE, "b", load=(5.0, None))
    bench = Bench(small_plan(CASCADE, low, high, alpha=8.0))
    bench.arrive(0)
    bench.arrive(1, ms=1)
    bench.lose("a0", ms=2)
    bench.router.tick(100 * MS)
    assert bench.router.gear == 1
    assert bench.started[-1] == ("b0", [1])  # 0 ran when its worker ended, and is run again where it ran


def test_a_cancelled_sample_does_not_run_again() -> None:
    bench = Bench(small_plan(ONE, small_gear(ONE, "a", largest=1)))
    first, second = bench.arrive(0), bench.arrive(1)
    runs = bench.arrive(2)
    bench.lose("a0", ms=1)
    bench.router.cancel(first, 2 * MS)
    bench.router.cancel(second, 2 * MS)
    bench.ready("a0", 3)
    assert bench.started[-1] == ("a0", [2])
    bench.router.cancel(runs, 4 * MS)
    bench.lose("a0", ms=5)
    bench.ready("a0", 6)
    assert bench.started[-1] == ("a0", [2])
    assert bench.router.waiting == 0


# Poison ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("killer", range(8))
def test_of_a_batch_only_the_killer_fails_and_it_ends_no_more_than_four_workers(killer: int) -> None:
    bench = Bench(small_plan(ONE, small_gear(ONE, "a", largest=8)), killers=[killer])
    bench.arrive(*range(8))
    bench.run_to_the_end(1)
    assert sorted(bench.answered) == list(range(8))
    assert list(bench.errors()) == [killer]
    assert bench.samples[killer].poisonous
    assert bench.deaths <= 4
    assert bench.router.waiting == 0


def test_a_killer_that_ran_alone_gets_a_second_worker_and_no_third() -> None:
    bench = Bench(small_plan(PAIR, small_gear(PAIR, "a")), killers=[0])
    bench.arrive(0)
    bench.run_to_the_end(1)
    assert bench.deaths == 2
    assert bench.errors() == {
        0: "2 workers of model 'a' ended while they ran this request, the last of them with nothing beside it; "
        "it is not run again"
    }


def test_companions_outlast_a_killer_that_takes_its_time_at_every_halving() -> None:
    bench = Bench(small_plan(ONE, small_gear(ONE, "a", largest=16)), killers=[5])
    bench.arrive(*range(16))
    ms = 0.0
    while bench.running:
        ((name, samples),) = bench.running.items()
        if 5 in [sample.sequence for sample in samples]:
            ms += 0.9 * LONGEST_RETRY_MS
            bench.lose(name, ms=ms)
            bench.ready(name, ms)
        else:
            bench.finish(name, ms)
        bench.wake(ms)
    assert sorted(bench.answered) == list(range(16))
    assert list(bench.errors()) == [5]


def test_several_killers_among_many_are_found_and_nobody_else_fails() -> None:
    bench = Bench(small_plan(PAIR, small_gear(PAIR, "a", largest=16)), killers=[3, 4, 40])
    for sequence in range(60):
        bench.arrive(sequence)
    bench.run_to_the_end(1)
    assert sorted(bench.answered) == list(range(60))
    assert sorted(bench.errors()) == [3, 4, 40]


# A lost later stage ---------------------------------------------------------------------------------------------------


def lost_later_stage(*, refuse: bool) -> Bench:
    """Sample 0 runs at b0 and sample 1 waits for it; both have the answer of a0."""
    bench = Bench(small_plan(CASCADE, small_gear(CASCADE, "a b", (0.5,), largest=1)), refuse=refuse)
    bench.arrive(0)
    bench.arrive(1)
    bench.finish("a0", 1, certainty=0.0)
    bench.finish("a0", 2, certainty=0.0)
    bench.lose("b0", ms=3)
    return bench


def test_what_ran_and_waited_at_a_lost_stage_keeps_the_answer_of_the_one_before() -> None:
    bench = lost_later_stage(refuse=False)
    assert sorted(bench.answered) == [0, 1]
    for sample in bench.samples.values():
        assert (sample.error, sample.degraded_by) == ("", "no worker of model 'b' is running")
        assert (sample.model, sample.stage) == (0, 0)
    assert bench.router.waiting == 0


def test_or_is_refused_as_the_operator_wants() -> None:
    bench = lost_later_stage(refuse=True)
    assert sorted(bench.answered) == [0, 1]
    for sample in bench.samples.values():
        assert sample.refused
        assert (sample.error, sample.degraded_by) == ("no worker of model 'b' is running; try again later", "")


def test_with_another_replica_of_the_stage_nothing_is_degraded() -> None:
    placed = {"a0": "d0", "b0": "d1", "b1": "d2"}
    bench = Bench(small_plan(placed, small_gear(placed, "a b", (0.5,), shares={"b0": 1.0, "b1": 0.0}, largest=1)))
    bench.arrive(0)
    bench.arrive(1)
    bench.finish("a0", 1, certainty=0.0)
    bench.finish("a0", 2, certainty=0.0)
    bench.lose("b0", ms=3)
    bench.finish("b1", 4)
    bench.finish("b1", 5)
    assert [(sample.error, sample.degraded_by, sample.stage) for sample in bench.samples.values()] == [("", "", 1)] * 2
    assert sorted(bench.answered) == [0, 1]


def test_suspects_of_a_stage_that_is_lost_altogether_keep_their_answers_too() -> None:
    placed = {"a0": "d0", "b0": "d1", "b1": "d2"}
    bench = Bench(small_plan(placed, small_gear(placed, "a b", (0.5,), shares={"b0": 1.0, "b1": 0.0})))
    bench.arrive(0, 1, 2, 3)
    bench.finish("a0", 1, certainty=0.0)
    bench.lose("b0", ms=2)  # b1 runs one half, the other waits
    bench.lose("b1", ms=3)
    assert [sample.degraded_by for sample in bench.samples.values()] == ["no worker of model 'b' is running"] * 4
    assert sorted(bench.answered) == [0, 1, 2, 3]


def test_a_deadline_that_leaves_no_time_at_a_later_stage_gives_the_answer_of_the_one_before() -> None:
    placed = {"a0": "d0", "b0": "d1", "b1": "d2"}
    bench = Bench(small_plan(placed, small_gear(placed, "a b", (0.5,))))
    (sample,) = bench.arrive(0, deadline_ns=12 * MS)
    bench.finish("a0", 1, certainty=0.0)
    bench.lose("b0", ms=3)
    assert (sample.degraded_by, bench.answered) == ("the worker of model 'b' ended while it ran this request", [0])


@pytest.mark.parametrize("refuse", [False, True])
def test_a_model_that_gives_no_answer_is_as_lost_to_its_samples_as_one_without_a_worker(refuse: bool) -> None:
    bench = Bench(small_plan(CASCADE, small_gear(CASCADE, "a b", (0.5,))), refuse=refuse)
    (sample,) = bench.arrive(0)
    bench.finish("a0", 1, certainty=0.0)
    sample.unanswered = True
    bench.finish("b0", 2)
    gave_none = "model 'b' gave no answer"
    told = ("", gave_none, False) if not refuse else (f"{gave_none}; try again later", "", True)
    assert bench.answered == [0]
    assert (sample.error, sample.degraded_by, sample.refused) == told
    assert (sample.model, sample.stage) == (0, 0 if not refuse else 1)


def test_without_an_earlier_answer_or_a_client_that_waits_it_fails() -> None:
    bench = Bench(small_plan(CASCADE, small_gear(CASCADE, "a b", (0.5,))))
    first, gone = *bench.arrive(0), *bench.arrive(1)
    first.unanswered = True
    bench.finish("a0", 1)
    assert (first.error, first.degraded_by, first.refused) == ("model 'a' gave no answer; try again later", "", False)
    bench.finish("a0", 2, certainty=0.0)
    bench.router.cancel([gone], 3 * MS)
    error = gone.error
    gone.unanswered = True
    bench.finish("b0", 4)
    assert (gone.error, gone.degraded_by) == (error, "")


def test_a_gear_without_the_lost_stage_answers_undegraded() -> None:
    low = small_gear(CASCADE, "a b", (0.5,), load=(0.0, 5.0), largest=1)
    high = small_gear(CASCADE, "a", load=(5.0, None))
    bench = Bench(small_plan(CASCADE, low, high))
    bench.arrive(0)
    bench.arrive(1)
    bench.finish("a0", 1, certainty=0.0)
    bench.finish("a0", 2, certainty=0.0)
    bench.router.tick(100 * MS)
    bench.lose("b0", ms=101)
    waited = bench.samples[1]
    assert (waited.degraded_by, waited.stage, bench.router.gear) == ("", 0, 1)
