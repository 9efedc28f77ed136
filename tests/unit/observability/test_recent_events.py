"""Which events are kept for who looks at the server now."""

import json

from gearshift.observability.journal import ARRIVALS, Journal
from gearshift.observability.recent_events import RecentEvents


class Kept(Journal):
    def __init__(self) -> None:
        self.events: list[str] = []

    def write(self, event: str, **facts: object) -> None:
        self.events.append(event)


def test_arrivals_are_written_and_push_no_other_event_out() -> None:
    kept = Kept()
    recent = RecentEvents(kept)
    recent.write("shift", gear=1)
    for _ in range(200):
        recent.write(ARRIVALS, requests=[1])
    assert [event["event"] for event in json.loads(recent.as_json())] == ["shift"]
    assert len(kept.events) == 201
