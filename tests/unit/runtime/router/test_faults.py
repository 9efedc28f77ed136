"""Batches that fail: who runs their rows, and which replicas are taken out."""

from typing import Any

from gearshift.policies.watch.ejection import MAX_FAILURES_IN_A_ROW
from gearshift.request import Sample
from tests.conformance.plans import MS
from tests.conformance.small import small_gear, small_plan
from tests.unit.runtime.driven import Driven

ONE = {"a0": "d0"}
PAIR = {"a0": "d0", "a1": "d1"}
CASCADE = {"a0": "d0", "b0": "d1"}


class Bench(Driven):
    """Rows are numbered; `gone` replicas give no answer, on `broken` ones the model raises."""

    def __init__(self, placed: dict[str, str], cascade: str = "a", *thresholds: float) -> None:
        super().__init__(small_plan(placed, small_gear(placed, cascade, thresholds, largest=4)))
        self.samples: dict[int, Sample] = {}
        self.gone, self.broken, self.bad = set[str](), set[str](), set[int]()
        self.ran: list[str] = []

    def arrive(self, *sequences: int, ms: float = 0, **request: Any) -> list[Sample]:
        samples = super().arrive(*sequences, ms=ms, **request)
        self.samples |= {sample.sequence: sample for sample in samples}
        return samples

    def settle(self, ms: float, certainty: float = 1.0) -> None:
        """End all batches, and those that follow."""
        while self.running:
            name, samples = next(iter(self.running.items()))
            self.ran.append(name)
            for one in samples:
                if name in self.gone:
                    one.unanswered = one.unreached = True
                elif name in self.broken or one.sequence in self.bad:
                    one.error, one.raised = "the model failed on this sample", True
            self.finish(name, ms, certainty)

    def ask(self, number: int, ms: float, certainty: float = 1.0) -> Sample:
        (sample,) = self.arrive(number, ms=ms)
        self.settle(ms, certainty)
        return sample

    def tick(self, ms: float) -> None:
        self.router.tick(int(ms * MS))

    def failing(self) -> list[str]:
        return [
            self.tables.replica_ids[n]
            for n, _ in enumerate(self.tables.replica_ids)
            if self.router.failing.ejections.is_failing(n)
        ]


def test_rows_of_a_replica_without_answers_go_on_to_another_until_it_is_taken_out() -> None:
    bench = Bench(PAIR)
    bench.gone = {"a0"}
    for number in range(20):
        assert not bench.ask(number, number).error
    assert bench.failing() == ["a0"]
    assert bench.ran.count("a0") == MAX_FAILURES_IN_A_ROW
    assert bench.router.can_answer(bench.router.pipeline)


def test_one_batch_tries_a_replica_after_its_pause_and_brings_it_back() -> None:
    bench = Bench(PAIR)
    bench.gone = {"a0"}
    for number in range(20):
        bench.ask(number, number)
    tried = bench.ran.count("a0")
    bench.tick(1100)
    for number in range(20, 30):
        bench.ask(number, 1100)
    assert bench.ran.count("a0") == tried + 1  # again in vain: 2 s
    bench.gone = set()
    bench.tick(2500)
    bench.ask(30, 2500)
    assert bench.failing() == ["a0"]
    bench.tick(3200)
    for number in range(31, 35):
        bench.ask(number, 3200)
    assert bench.failing() == []


def test_where_a_later_stage_fails_the_answer_before_it_is_kept_at_once() -> None:
    bench = Bench(CASCADE, "a b", 0.5)
    bench.gone = {"b0"}
    for number in range(10):
        sample = bench.ask(number, number, certainty=0.0)
        assert (sample.error, sample.degraded_by) == ("", "model 'b' gave no answer")
    assert bench.ran.count("b0") == MAX_FAILURES_IN_A_ROW
    assert bench.router.can_answer(bench.router.pipeline)


def test_where_the_first_stage_fails_the_next_one_runs_its_rows() -> None:
    bench = Bench(CASCADE, "a b", 0.5)
    bench.gone = {"a0"}
    models = [bench.ask(number, number).model for number in range(20)]
    assert {bench.tables.models[model] for model in models} == {"b"}
    assert bench.ran.count("a0") == MAX_FAILURES_IN_A_ROW
    assert not any(sample.error or sample.degraded_by for sample in bench.samples.values())
    assert bench.router.can_answer(bench.router.pipeline)


def test_an_only_replica_is_asked_all_the_same_and_answers_again_with_its_first_answer() -> None:
    bench = Bench(ONE)
    bench.gone = {"a0"}
    for number in range(8):
        assert bench.ask(number, number).error
    assert bench.ran.count("a0") == 8
    assert not bench.router.can_answer(bench.router.pipeline)
    bench.gone = set()
    assert not bench.ask(8, 9).error
    assert bench.failing() == []
    assert bench.router.can_answer(bench.router.pipeline)


def test_rows_on_which_every_model_raises_take_no_replica_out() -> None:
    bench = Bench(PAIR)
    bench.bad = set(range(30))
    for number in range(30):
        assert bench.ask(number, number).error
    assert bench.failing() == []


def test_a_replica_that_raises_on_what_others_answer_is_taken_out() -> None:
    bench = Bench(PAIR)
    bench.broken = {"a1"}
    for number in range(20):
        assert not bench.ask(number, number).error
    assert bench.failing() == ["a1"]


def test_retries_end_with_their_budget() -> None:
    bench = Bench(PAIR)
    bench.gone = {"a0", "a1"}
    for number in range(60):
        assert bench.ask(number, number).error
    assert len(bench.ran) <= 60 + 60 * 20 // 100


def test_a_worker_that_was_restarted_begins_in_service() -> None:
    bench = Bench(PAIR)
    bench.gone = {"a0"}
    for number in range(20):
        bench.ask(number, number)
    bench.lose("a0", ms=21)
    bench.ready("a0", ms=22)
    assert bench.failing() == []


def test_what_a_model_refuses_is_no_failure() -> None:
    bench = Bench(ONE)
    for number in range(10):
        bench.arrive(number, ms=number)
        (samples,) = bench.running.values()
        samples[0].error = "the endpoint refused it"
        bench.finish("a0", number)
    assert bench.failing() == []
    assert bench.router.can_answer(bench.router.pipeline)
