"""Metrics of deadlines: the time left to them, and how long requests travelled."""

from collections.abc import Sequence

from gearshift.clock import NS_PER_S
from gearshift.observability.families import Families
from gearshift.request import NO_DEADLINE_NS, Answer, Sample

SLACK_SECONDS = (0.0, *(base * 10.0**power for power in range(-3, 2) for base in (1, 2, 5)))
"""The first bucket holds late ones."""
TRAVEL_SECONDS = SLACK_SECONDS[1:]


class DeadlineMetrics:
    """Metrics of requests with a client's deadline."""

    def __init__(self, families: Families | None = None) -> None:
        of = families or Families()
        slack = of.histogram(
            "gearshift_slack_seconds",
            "Time left to the earliest deadline of a batch at its start, and to a request's at its end.",
            "at",
            buckets=SLACK_SECONDS,
        )
        self.dispatch, self.finish = slack.labels("dispatch"), slack.labels("finish")
        self.communication = of.histogram(
            "gearshift_communication_seconds",
            "From when a request was sent, where that is trusted, to its arrival.",
            buckets=TRAVEL_SECONDS,
        ).labels()
        self.untrusted = of.counter(
            "gearshift_untrusted_clocks",
            "Requests whose time of sending did not count.",
            "reason",
            known=("clock", "malformed"),
        )

    def started(self, samples: Sequence[Sample], now_ns: int) -> None:
        tightest_ns = min([sample.request.deadline_ns for sample in samples])
        if tightest_ns < NO_DEADLINE_NS:
            self.dispatch.observe((tightest_ns - now_ns) / NS_PER_S)

    def settled(self, answer: Answer) -> None:
        if answer.remaining_s is not None and answer.outcome != "refused":
            self.finish.observe(answer.remaining_s)
