"""Plans of language models, by hand; and what holds for all of them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.shared.engine_runs import run_engine
from gearshift.cascade import Cascade
from gearshift.decisions import Decision
from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan
from gearshift.language_workload import LanguageWorkload
from gearshift.objective import Objective
from gearshift.profiles.engines.engine_profile import Sharing, StepCurve
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.language_profile import AnswerRecords, LanguageProfile
from gearshift.simulator.engines import LanguageSimulation, simulate_language
from tests.language_task import (
    MS,
    language_cases,
    language_gear,
    language_plan,
    language_workload,
    random_answers,
    small_engine,
)
from tests.often import often

ENQUEUE, SEND, CANCEL, ANSWER = Decision.ENQUEUE, Decision.SEND, Decision.CANCEL, Decision.ANSWER
CONSTANT = StepCurve(tokens=(1, 32), step_s=(0.01, 0.01))
"""Steps of 10 ms, however much is in them."""
BOTH = {"small-0": "d0", "large-0": "d1"}


def answers(outputs: list[list[int]], certainty: list[float]) -> AnswerRecords:
    """Prompts of 8 tokens; the small model's certainty (prompts,) is the same at each token."""
    made = random_answers(("small", "large"), len(certainty), 0)
    sure = np.array(certainty)[None, :, None]
    return replace(
        made,
        quality=np.array([[0.0] * len(certainty), [1.0] * len(certainty)]),
        certainty=np.broadcast_to(sure, made.certainty.shape),
        prompt_tokens=np.full(made.prompt_tokens.shape, 8),
        output_tokens=np.array(outputs),
    )


def serve(
    plan: GearPlan, recorded: AnswerRecords, workload: LanguageWorkload, sharing: tuple[Sharing, ...] = ()
) -> LanguageSimulation:
    engines = tuple(small_engine(model, prefill=CONSTANT, decode=CONSTANT) for model in recorded.models)
    profile = LanguageProfile(operator="chat", engines=engines, answers=recorded, sharing=sharing)
    return simulate_language(engine_tables(plan, profile), profile, workload, log=True)


def small_then_large(at: int | None, threshold: float = 0.5) -> Cascade:
    return Cascade(models=("small", "large"), thresholds=(threshold,), decide_at_tokens=(at,))


def rows(made: LanguageSimulation) -> list[tuple[int, Decision, int, int, int]]:
    return [(now_ns // MS, *row) for now_ns, *row in made.log]


def test_a_sure_stage_shows_its_tokens_when_it_decides_and_an_unsure_one_gives_them_up():
    plan = language_plan(BOTH, language_gear(BOTH, small_then_large(4)))
    made = serve(plan, answers([[6, 6], [3, 3]], [0.9, 0.1]), language_workload([0, 0], [0, 1]))
    assert rows(made) == [
        (0, ENQUEUE, 0, 0, 0),
        (0, ENQUEUE, 1, 0, 0),
        (0, SEND, 0, 0, 1),
        (0, SEND, 1, 0, 2),
        (40, ANSWER, 0, 0, 0),  # 10 ms of prompts, which gives a token, and three steps
        (40, CANCEL, 1, 0, 4),
        (40, ENQUEUE, 1, 1, 1),
        (40, SEND, 1, 1, 1),
        (50, ANSWER, 1, 1, 0),
    ]
    assert made.decided_at_token.tolist() == [4, 1]
    assert (made.ttft_ns // MS).tolist() == [40, 50]
    assert (made.total_ns // MS).tolist() == [60, 70]
    assert made.discarded_tokens.tolist() == [[0, 0], [4, 0]]
    assert made.output_tokens.tolist() == [6, 3]
    assert (made.busy_ns // MS).tolist() == [60, 30]


@pytest.mark.parametrize(("at", "decided_ms"), [(1, 10), (4, 20), (None, 20)])
def test_an_answer_that_ends_early_decides_at_its_end(at, decided_ms):
    plan = language_plan(BOTH, language_gear(BOTH, small_then_large(at)))
    made = serve(plan, answers([[2, 2], [3, 3]], [0.1, 0.1]), language_workload([0], [1]))
    assert [row[:2] for row in rows(made) if row[1] == CANCEL] == [(decided_ms, CANCEL)]


def test_a_stage_that_decides_by_id_answers_at_its_first_token_or_is_passed_over():
    plan = language_plan(BOTH, language_gear(BOTH, small_then_large(0, 0.7)))
    n = 200
    made = serve(plan, answers([[6, 6], [3, 3]], [0.0, 0.0]), language_workload(np.arange(n) * 200, np.arange(n) % 2))
    assert ((made.workload.by_id >= 0.7) == (made.model == 0)).all()
    assert 30 < (made.model == 0).sum() < 90
    assert (made.ttft_ns == 10 * MS).all()
    assert made.discarded_tokens.sum() == 0


def test_requests_beyond_what_an_engine_may_have_wait_for_one_to_end():
    plan = language_plan(BOTH, language_gear(BOTH, Cascade(models=("large",)), most_outstanding=1))
    made = serve(plan, answers([[6, 6], [3, 3]], [0.0, 0.0]), language_workload([0, 0, 0], [0, 1, 0]))
    assert (made.ttft_ns // MS).tolist() == [10, 40, 70]
    assert made.most_waiting == 3


def test_a_shift_moves_what_waits_and_has_run_nowhere_and_decides_the_rest_by_the_new_gear():
    first = language_gear(BOTH, small_then_large(None), load=(0.0, 3.0), most_outstanding=1)
    then = language_gear(BOTH, Cascade(models=("large",)), load=(3.0, None), most_outstanding=1)
    plan = language_plan(BOTH, first, then, load_unit="outstanding_requests")
    made = serve(plan, answers([[20, 20], [3, 3]], [0.0, 0.0]), language_workload([0, 0, 0], [0, 1, 0]))
    assert rows(made)[4:] == [
        (100, Decision.SHIFT, 0, 1, 0),
        (100, ENQUEUE, 1, 1, 0),
        (100, ENQUEUE, 2, 1, 0),
        (100, SEND, 1, 1, 1),
        (110, ANSWER, 0, 0, 1),  # the gear has no such model: it answers with its next token
        (110, ANSWER, 1, 1, 1),
        (130, SEND, 2, 1, 1),
        (140, ANSWER, 2, 1, 1),
        (200, Decision.SHIFT, 1, 0, 0),
    ]
    assert made.shifts.tolist() == [[100 * MS, 1], [200 * MS, 0]]


def factors(small: float = 1.0, large: float = 1.0) -> tuple[Sharing, Sharing]:
    return (
        Sharing(model="small", beside="large", device_kind="gpu", factor=small),
        Sharing(model="large", beside="small", device_kind="gpu", factor=large),
    )


def beside_each_other(*sharing: Sharing, arrivals_ms: Sequence[float] = (0, 0)) -> LanguageSimulation:
    """A request of each model, of three steps that take 10 ms alone, on one device."""
    shared = {"small-0": "d0", "large-0": "d0"}
    plan = language_plan(shared, language_gear(shared, small_then_large(0, 0.5)))
    workload = replace(language_workload(arrivals_ms, [0, 1]), by_id=np.array([0.9, 0.1]))
    made = serve(plan, answers([[3, 3], [3, 3]], [0.0, 0.0]), workload, sharing)
    assert made.model.tolist() == [0, 1]
    return made


@pytest.mark.parametrize("sharing", [(), factors()[:1]])
def test_replicas_on_the_same_device_that_were_not_timed_together_take_turns_in_steps(
    sharing: tuple[Sharing, ...],
) -> None:
    made = beside_each_other(*sharing)
    assert (made.ttft_ns // MS).tolist() == [10, 20]
    assert (made.total_ns // MS).tolist() == [50, 60]
    assert (made.busy_ns // MS).tolist() == [60]


def test_replicas_at_work_on_the_same_device_have_half_of_its_time_each():
    made = beside_each_other(*factors())
    assert (made.ttft_ns // MS).tolist() == [20, 20]
    assert (made.total_ns // MS).tolist() == [60, 60]
    assert (made.busy_ns // MS).tolist() == [60]


def test_a_step_is_slowed_only_while_another_is_at_work_on_its_device():
    made = beside_each_other(*factors(), arrivals_ms=(0, 15))
    # 15 ms alone, then 15 ms of work at half the speed, then the other alone
    assert (made.finished_ns // MS).tolist() == [45, 60]
    assert (made.busy_ns // MS).tolist() == [60]


def test_replicas_slow_each_other_by_the_factor_that_was_measured_for_both():
    # the small one's steps take 30 ms while the large one works: two of them in its 60 ms, and then one alone
    assert (beside_each_other(*factors(small=1.5)).total_ns // MS).tolist() == [70, 60]


def test_no_factor_makes_a_step_faster_than_alone():
    assert (beside_each_other(*factors(0.1, 0.1)).total_ns // MS).tolist() == [30, 30]


def test_token_counts_of_a_trace_take_the_place_of_the_records():
    plan = language_plan(BOTH, language_gear(BOTH, Cascade(models=("large",))))
    workload = language_workload([0, 500], [0, 1])
    given = LanguageWorkload(
        arrivals_ns=workload.arrivals_ns,
        record=workload.record,
        by_id=workload.by_id,
        duration_s=1.0,
        prompt_tokens=np.array([40, 8]),
        output_tokens=np.array([1, 7]),
    )
    made = serve(plan, answers([[6, 6], [3, 3]], [0.0, 0.0]), given)
    assert (made.ttft_ns // MS).tolist() == [30, 10]  # three chunks of 16 tokens
    assert (made.total_ns // MS).tolist() == [30, 70]


def test_a_request_that_a_replica_could_never_hold_is_refused():
    plan = language_plan(BOTH, language_gear(BOTH, Cascade(models=("large",))))
    with pytest.raises(
        InvalidInput, match="1 requests take more than the 64 blocks of 4 tokens that replica 'large-0'"
    ):
        serve(plan, answers([[6, 6], [3, 290]], [0.0, 0.0]), language_workload([0, 0], [0, 1]))


def test_figures_count_answers_and_tokens_from_when_they_are_asked_for():
    plan = language_plan(BOTH, language_gear(BOTH, small_then_large(4)))
    made = serve(plan, answers([[6, 6], [3, 3]], [0.9, 0.1]), language_workload([0, 1000, 2000], [0, 1, 1]))
    profile = LanguageProfile(
        operator="chat",
        engines=(small_engine("small"), small_engine("large")),
        answers=answers([[6, 6], [3, 3]], [0.9, 0.1]),
    )
    objective = Objective(metric="ttft", latency_s=0.045)
    whole = made.result(profile, objective)
    assert (whole.requests, whole.accuracy, whole.share_late) == (3, 2 / 3, pytest.approx(2 / 3))
    assert whole.tokens.output_tokens == 12
    assert whole.tokens.discarded_tokens == {"small": 8}
    assert whole.tokens.answered_by == {"small": pytest.approx(1 / 3), "large": pytest.approx(2 / 3)}
    assert whole.latency_s == whole.tokens.ttft_s
    assert whole.utilisation == {"d0": pytest.approx(0.14 / 3), "d1": pytest.approx(0.06 / 3)}
    later = made.result(profile, msgspec.structs.replace(objective, metric="per_token"), from_s=1.0)
    assert (later.requests, later.accuracy) == (2, 1.0)
    assert later.tokens.per_token_s.p50 == pytest.approx(0.01)
    assert later.latency_s == later.tokens.per_token_s


@settings(max_examples=often(40))
@given(language_cases())
def test_each_request_is_answered_once_and_its_rows_are_in_order(case):
    tables, profile, workload = case
    made = simulate_language(tables, profile, workload, log=True)
    order = {ENQUEUE: 0, SEND: 1, CANCEL: 2, ANSWER: 2}
    for i in range(len(workload)):
        own = [row for row in made.log if row[2] == i and row[1] in order]
        kinds = [Decision(row[1]) for row in own]
        assert kinds[0] == ENQUEUE
        assert kinds[-2:] == [SEND, ANSWER]
        assert kinds.count(ANSWER) == 1
        assert all(order[b] in (order[a] + 1, 0) for a, b in pairwise(kinds) if b != ENQUEUE)
        assert own[-1][0] == made.answered_ns[i] <= made.finished_ns[i]
        assert (made.discarded_tokens[i] > 0).sum() == kinds.count(CANCEL)
    assert (made.busy_ns <= made.finished_ns.max()).all()


@settings(max_examples=often(40))
@given(language_cases())
def test_one_model_on_one_replica_is_its_engine_alone(case):
    _, profile, workload = case
    model = profile.models[0]
    placed = {f"{model}-0": "d0"}
    plan = language_plan(placed, language_gear(placed, Cascade(models=(model,))))
    made = simulate_language(engine_tables(plan, profile), profile, workload)
    lengths = profile.answers.prompt_tokens[0, workload.record], profile.answers.output_tokens[0, workload.record]
    alone = run_engine(profile.engines[0], workload.arrivals_ns, lengths[0].tolist(), lengths[1].tolist())
    assert (made.answered_ns == alone.first_token_ns).all()
    assert (made.finished_ns == alone.finished_ns).all()
    assert (made.preempted == alone.preempted).all()
