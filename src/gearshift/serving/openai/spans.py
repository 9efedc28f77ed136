"""The spans of a request to language models: what each stage did, and how the request was answered."""

import math

from gearshift.observability.tracing import RequestSpan
from gearshift.request import Answer, Outcome
from gearshift.runtime.engines.answers.answer_stream import AnswerStream
from gearshift.runtime.engines.requests.engine_request import StageVisit

LONGEST_REASON = 500


def trace_visit(span: RequestSpan, operator: str, visit: StageVisit) -> None:
    """Add a stage that has ended: its wait, and its time at the engine."""
    facts: dict[str, str | int | float] = {
        "gearshift.operator": operator,
        "gearshift.model": visit.model,
        "gearshift.stage": visit.stage,
        "gearshift.replica": visit.replica,
        "gearshift.prompt_tokens": visit.prompt_tokens,
        "gearshift.output_tokens": visit.output_tokens,
        "gearshift.outcome": visit.outcome,
    }
    if math.isfinite(visit.certainty):
        facts["gearshift.certainty"] = visit.certainty
    span.stage(visit.queued_ns, visit.sent_ns, visit.ended_ns, facts)


def trace_answer(span: RequestSpan | None, stream: AnswerStream, model: str) -> None:
    """Tell a span, if there is one, by which model and when its request was answered."""
    if span is None:
        return
    request, usage = stream.request, stream.usage
    span.answered(Answer(outcome=stream.outcome, gear=request.gear))
    span.tell(
        {
            "gearshift.model": model,
            "gearshift.stage": request.stage,
            "gearshift.decided_at_token": request.decided_at,
            "gearshift.ttft_s": (stream.answered_ns - stream.arrived_ns) / 1e9,
            "gearshift.output_tokens": stream.output_tokens,
            **({} if usage is None else {"gearshift.prompt_tokens": usage.prompt_tokens}),
        }
    )


def trace_failure(span: RequestSpan | None, reason: str, outcome: Outcome = "failed") -> None:
    """Tell a span, if there is one, why its request has no whole answer."""
    if span is not None:
        span.tell({"gearshift.outcome": outcome, "gearshift.reason": reason[:LONGEST_REASON]})
