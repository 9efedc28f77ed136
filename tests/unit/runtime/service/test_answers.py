from typing import Any

import numpy as np
import pytest

from gearshift.errors import DeadlinePassed, NotReady, QueueFull, UnknownModel
from gearshift.request import NO_DEADLINE_NS, Answer, Outcome, Request, RowFacts, Sample
from gearshift.runtime.service.answers import answer_of, judged, raise_if_refused, refused

FACTS = RowFacts(model="a", stage=0, certainty=1.0)


def judge(now_ns: int, *, refuses: bool = True, outcome: Outcome = "answered", **request: Any) -> Answer:
    asked = Request(id=1, operator="task", arrived_ns=0, **({"deadline_ns": 1000} | request))
    return judged(Answer(outcome=outcome, rows=(FACTS,), outputs={}), asked, now_ns, refuses=refuses)


def test_an_answer_at_its_deadline_is_in_time_and_says_what_was_left() -> None:
    assert (judge(1000).outcome, judge(1000).remaining_s) == ("answered", 0.0)
    assert judge(400).remaining_s == 600e-9


@pytest.mark.parametrize("outcome", ["answered", "degraded"])
def test_an_answer_after_its_deadline_is_refused_as_execution_or_given_as_late(outcome: Outcome) -> None:
    refused = judge(1001, outcome=outcome)
    assert (refused.outcome, refused.reason, refused.rows, refused.outputs) == ("refused", "execution", (), None)
    with pytest.raises(DeadlinePassed, match=r"^execution: "):
        raise_if_refused(refused)
    late = judge(1001, outcome=outcome, refuses=False)
    assert (late.outcome, late.rows, late.outputs) == ("late", (FACTS,), {})


def test_a_failure_after_the_deadline_stays_one() -> None:
    assert judge(1001, outcome="failed").outcome == "failed"


def test_the_time_that_the_objective_wants_judges_nothing() -> None:
    wanted = {"deadline_ns": NO_DEADLINE_NS, "answer_by_ns": 1000}
    assert judge(1001, **wanted) == judge(0, **wanted)


def test_any_other_refusal_says_to_try_again() -> None:
    with pytest.raises(NotReady, match="no worker"):
        raise_if_refused(Answer(outcome="refused", reason="no worker"))


def test_an_answer_tells_of_each_row_which_model_it_was_and_where_the_row_left_it():
    request = Request(id=1, operator="o", arrived_ns=0, rows=2)
    samples = [
        Sample(request, row, row, stage=1, model=1, certainty=0.5, exit_segment=leaves, result={"y": np.array([row])})
        for row, leaves in enumerate((3, 0))
    ]
    answer = answer_of(samples, ("small", "large"), gear=2)
    assert answer.outcome == "answered"
    assert [(row.model, row.stage, row.exit_segment) for row in answer.rows] == [("large", 1, 3), ("large", 1, 0)]
    assert answer.outputs["y"].tolist() == [0, 1]


def test_a_gear_that_the_plan_does_not_have_is_told_to_another_process() -> None:
    with pytest.raises(UnknownModel, match="gear is 9"):
        raise_if_refused(refused(UnknownModel("gear is 9")))


def test_a_refusal_that_crosses_to_another_process_says_when_to_come_again() -> None:
    told = refused(QueueFull("full", 7))
    with pytest.raises(QueueFull, match="full") as caught:
        raise_if_refused(told)
    assert caught.value.retry_after_s == 7
