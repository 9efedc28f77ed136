"""Looks at a server: what is in one, and who gets them as they are taken."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gearshift.objective import Metric
from gearshift.observability.journal import Journal
from gearshift.observability.metrics import Metrics
from gearshift.observability.recent_events import RecentEvents
from gearshift.plans.plan_tables import plan_tables
from gearshift.runtime.backends.emulated import EmulatedBackend
from gearshift.runtime.service.service import Service
from gearshift.serving.operate.control import Control
from gearshift.serving.pages import live
from gearshift.serving.pages.live import KEPT, Live
from tests.little_task import little_plan, little_profile


class Clock:
    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


class Viewer:
    """A stream that keeps its parts."""

    def __init__(self) -> None:
        self.client, self.ending, self.crowded = self, False, False
        self.on_gone: Callable[[], None] | None = None
        self.parts: list[bytes] = []
        self.begun = self.ended = 0

    def begin_stream(self, status: int, content_type: bytes, extra: Any = ()) -> None:
        self.begun = status

    def stream(self, part: bytes) -> None:
        self.parts.append(part)

    def end_stream(self, status: int) -> None:
        self.ended = status

    def looks(self) -> list[Any]:
        return [json.loads(part.partition(b"data: ")[2]) for part in self.parts]


class World:
    """A server that is not started, with what it is looked at by."""

    def __init__(self) -> None:
        self.clock, self.metrics = Clock(), Metrics(["sums"])
        plan = little_plan("")
        tables = plan_tables(plan)
        service = Service(tables, EmulatedBackend(tables, plan, little_profile()), metrics=self.metrics)
        self.events = RecentEvents(Journal(), now_s=self.clock)
        self.control = Control(service)
        self.metric: Metric = "latency"
        self.live = Live(self.control, self.metrics.glance, self.events, metric=lambda: self.metric, now_s=self.clock)

    def tick(self) -> None:
        self.clock.s += 1
        self.live.tick()


@pytest.fixture
def world() -> World:
    return World()


def test_a_look_has_the_status_and_what_came_after_the_time_that_is_named(world: World) -> None:
    world.events.write("early")
    for _ in range(3):
        world.tick()
    world.clock.s += 0.5
    world.events.write("late", gear=1)
    look = json.loads(world.live.as_json(1001.5))
    assert look["status"]["state"] == "starting"
    assert [moment[0] for moment in look["past"]["sums"]] == [1002, 1003]
    assert [event["event"] for event in look["events"]] == ["late"]
    assert len(json.loads(world.live.as_json())["past"]["sums"]) == 3


def test_ten_minutes_are_kept(world: World) -> None:
    for _ in range(KEPT + 5):
        world.tick()
    moments = json.loads(world.live.as_json())["past"]["sums"]
    assert (len(moments), moments[0][0]) == (KEPT, 1006)


def test_times_of_another_metric_are_not_kept_after_a_swap(world: World) -> None:
    world.tick()
    world.metric = "ttft"
    world.tick()
    assert [moment[0] for moment in json.loads(world.live.as_json())["past"]["sums"]] == [1002]


def test_loads_in_another_unit_are_not_kept_after_a_swap(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.tick()
    status = world.control.status()
    of = msgspec.structs.replace(status.pipelines[0], load_unit="drain_s")
    monkeypatch.setattr(world.control, "status", lambda: msgspec.structs.replace(status, pipelines=[of]))
    world.tick()
    world.tick()
    assert [moment[0] for moment in json.loads(world.live.as_json())["past"]["sums"]] == [1002, 1003]


def test_requests_are_counted_over_ten_seconds(world: World) -> None:
    world.tick()
    world.metrics.refused("sums", "queue_full")
    for _ in range(10):
        world.tick()
    now = json.loads(world.live.as_json())["last_10_s"]["sums"]
    assert (now["outcomes"]["refused"], now["dropped"]["queue_full"], now["window_s"]) == (1, 1, 10)
    world.tick()
    assert json.loads(world.live.as_json())["last_10_s"]["sums"]["outcomes"]["refused"] == 0


def test_a_viewer_gets_the_past_at_once_and_then_each_look(world: World) -> None:
    world.tick()
    world.tick()
    viewer = Viewer()
    world.live.show(viewer)
    world.tick()
    assert viewer.begun == 200
    assert [[moment[0] for moment in look["past"]["sums"]] for look in viewer.looks()] == [[1001, 1002], [1003]]
    assert viewer.parts[1].startswith(b"id: 1003.000\ndata: ")


def test_a_viewer_that_does_not_read_is_told_later_what_it_missed(world: World) -> None:
    world.tick()
    viewer = Viewer()
    world.live.show(viewer)
    viewer.crowded = True
    world.tick()
    world.events.write("shift")
    world.tick()
    assert len(viewer.parts) == 1
    viewer.crowded = False
    world.tick()
    (_, look) = viewer.looks()
    assert [moment[0] for moment in look["past"]["sums"]] == [1002, 1003, 1004]
    assert [event["event"] for event in look["events"]] == ["shift"]


def test_viewers_are_bounded_and_let_go_when_they_leave_or_the_server_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_VIEWERS", 2)
    viewers = [Viewer(), Viewer()]
    for viewer in viewers:
        assert not world.live.full
        world.live.show(viewer)
    assert world.live.full
    assert viewers[0].on_gone is not None
    viewers[0].on_gone()
    assert not world.live.full
    viewers[1].ending = True
    world.tick()
    assert (viewers[1].ended, len(viewers[1].parts)) == (200, 1)
    world.live.show(viewers[0])
    world.live.stop()
    assert viewers[0].ended == 200
