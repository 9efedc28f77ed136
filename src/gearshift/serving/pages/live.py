"""A look at the server once a second, for its live page: what it does now, and the last ten minutes."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, Protocol

import msgspec

from gearshift.objective import Metric
from gearshift.observability.families import SECONDS
from gearshift.observability.glance import Glance, percentile_of
from gearshift.observability.recent_events import RecentEvents
from gearshift.runtime.router.status import Status
from gearshift.serving.operate.control import Control

LIVE_PATH = "/v2/gearshift/live"
EVENT_STREAM = b"text/event-stream"
PERIOD_S = 1.0
KEPT = 600
"""Looks at the load: ten minutes."""
WINDOW = 10
"""Looks over which percentiles and rates are taken."""
MOST_VIEWERS = 32
"""A further viewer gets one look at a time."""

Headers = Sequence[tuple[bytes, bytes]]
Times = tuple[float | None, float | None, float | None]
"""p50, p95 and p99 in seconds, to the edges of the metrics' buckets; None where nothing was answered."""


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """A pipeline at the Unix time `at`: its load, arrivals, gear, waiting samples, and times of the last 10 s."""

    at: float
    load: float
    rate_qps: float
    gear: int
    waiting: int
    p50_s: float | None
    p95_s: float | None


class NodeNow(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a pipeline over the last 10 s; `mean_s` is an item's time in queues and batches."""

    items_qps: float
    failed: float
    mean_s: float | None


class PipelineNow(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline over the last `window_s`: requests by outcome, those refused by why, and its times.

    `answered_by` has rows, or answers of language models, by the model that gave them. `ttft`,
    `per_token` and `tokens_qps` are of language models.
    """

    window_s: float
    outcomes: dict[str, float]
    dropped: dict[str, float]
    late: float
    latency: Times
    answered_by: dict[str, float]
    nodes: dict[str, NodeNow]
    ttft: Times | None
    per_token: Times | None
    tokens_qps: float


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The server at the Unix time `at`.

    `last_10_s` is by pipeline, `busy` the share of the last 10 s that batches held each device.
    `past` has for each pipeline the moments, and `events` those of the journal, since the time that
    the header `Last-Event-ID` names.
    """

    at: float
    status: Status
    last_10_s: dict[str, PipelineNow]
    busy: dict[str, float]
    past: dict[str, list[Moment]]
    events: list[msgspec.Raw]


class Viewer(Protocol):
    """A request that is answered with a stream: an `HttpExchange`."""

    @property
    def client(self) -> Any: ...

    on_gone: Callable[[], None] | None

    def begin_stream(self, status: int, content_type: bytes, extra: Headers = ()) -> None: ...

    def stream(self, part: bytes) -> None: ...

    def end_stream(self, status: int) -> None: ...


class Live:
    """Looks at `control` from `start` to `stop`; `glance` gives a pipeline's metrics by its name.

    Moments have the times of `metric`, the one that the objective of language models is of.
    """

    def __init__(
        self,
        control: Control,
        glance: Callable[[str], Glance],
        events: RecentEvents,
        *,
        metric: Callable[[], Metric] = lambda: "latency",
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._control, self._glance, self._events, self._now_s = control, glance, events, now_s
        self._metric = metric
        self._kinds: tuple[str, ...] = ("",)
        """The kinds of times and loads that are kept."""
        self._glances: dict[str, deque[tuple[float, Glance]]] = {
            name: deque(maxlen=WINDOW + 1) for name in control.pipelines
        }
        self._past: dict[str, deque[Moment]] = {name: deque(maxlen=KEPT) for name in control.pipelines}
        self._viewers: dict[Viewer, float] = {}
        """With the time up to which each was told."""
        self._latest: Look | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self.start)
        self.tick()

    def stop(self) -> None:
        """End all streams; may be called twice, and before `start`."""
        if self._timer is not None:
            self._timer.cancel()
        for viewer in list(self._viewers):
            viewer.end_stream(200)
        self._viewers.clear()

    @property
    def full(self) -> bool:
        return len(self._viewers) >= MOST_VIEWERS

    def tick(self) -> None:
        at, status = round(self._now_s(), 3), self._control.status()
        kinds = (self._metric(), *(str(pipeline.load_unit) for pipeline in status.pipelines))
        if self._kinds != kinds:  # another plan has another objective, or another unit of load
            self._kinds = kinds
            for moments in self._past.values():
                moments.clear()
        last = {pipeline.name: self._look_at(at, pipeline.name) for pipeline in status.pipelines}
        for pipeline in status.pipelines:
            p50_s, p95_s, _ = self._of_objective(last[pipeline.name])
            load, rate_qps = round(pipeline.load, 3), round(pipeline.rate_qps, 3)
            moment = Moment(at, load, rate_qps, pipeline.gear, pipeline.waiting, p50_s, p95_s)
            self._past[pipeline.name].append(moment)
        self._latest = Look(at=at, status=status, last_10_s=last, busy=self._busy(), past={}, events=[])
        self._tell(at)

    def as_json(self, after_s: float = 0.0) -> bytes:
        """The latest look, with what came after the Unix time `after_s`."""
        if self._latest is None:
            self.tick()
        assert self._latest is not None
        past = {
            name: list(takewhile(lambda moment: moment.at > after_s, reversed(moments)))[::-1]
            for name, moments in self._past.items()
        }
        return msgspec.json.encode(msgspec.structs.replace(self._latest, past=past, events=self._events.after(after_s)))

    def show(self, viewer: Viewer, after_s: float = 0.0) -> None:
        """Send looks to `viewer` as they are taken, until it or the server leaves."""
        viewer.begin_stream(200, EVENT_STREAM, [(b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")])

        def left() -> None:
            self._viewers.pop(viewer, None)

        viewer.on_gone = left
        viewer.stream(self._part(after_s))
        self._viewers[viewer] = self._at

    def _of_objective(self, now: PipelineNow) -> Times:
        times = {"ttft": now.ttft, "per_token": now.per_token}.get(self._kinds[0])
        return now.latency if times is None else times

    @property
    def _at(self) -> float:
        return 0.0 if self._latest is None else self._latest.at

    def _part(self, after_s: float) -> bytes:
        look = self.as_json(after_s)
        return b"id: %.3f\ndata: %b\n\n" % (self._at, look)

    def _tell(self, at: float) -> None:
        parts: dict[float, bytes] = {}
        for viewer, told_s in list(self._viewers.items()):
            if viewer.client.ending:
                del self._viewers[viewer]
                viewer.end_stream(200)
            elif not viewer.client.crowded:
                if told_s not in parts:
                    parts[told_s] = self._part(told_s)
                viewer.stream(parts[told_s])
                self._viewers[viewer] = at

    def _look_at(self, at: float, name: str) -> PipelineNow:
        now = self._glance(name)
        glances = self._glances[name]
        glances.append((at, now))
        before_s, before = glances[0]
        passed_s = max(at - before_s, 1e-3)
        rate = 1 / passed_s if len(glances) > 1 else 0.0
        nodes = {}
        for node, sums in now.nodes.items():
            old = before.nodes.get(node, sums)
            items = sums.items - old.items
            mean_s = (sums.seconds - old.seconds) / items if items else None
            nodes[node] = NodeNow(items_qps=items * rate, failed=sums.failed - old.failed, mean_s=mean_s)
        return PipelineNow(
            window_s=round(passed_s, 1),
            outcomes=_since(before.outcomes, now.outcomes),
            dropped=_since(before.dropped, now.dropped),
            late=now.late - before.late,
            latency=_times(before.latency, now.latency),
            answered_by=_since(before.answers_by_model, now.answers_by_model),
            nodes=nodes,
            ttft=_times(before.ttft, now.ttft) if now.ttft else None,
            per_token=_times(before.per_token, now.per_token) if now.per_token else None,
            tokens_qps=(now.output_tokens - before.output_tokens) * rate,
        )

    def _busy(self) -> dict[str, float]:
        """By device; all pipelines share the devices."""
        glances = next(iter(self._glances.values()), None)
        if not glances or len(glances) < 2:
            return {}
        (before_s, before), (at, now) = glances[0], glances[-1]
        return {
            device: round(min(1.0, busy_s / max(at - before_s, 1e-3)), 4)
            for device, busy_s in _since(before.busy_s, now.busy_s).items()
        }


def _since(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0.0) for name, value in now.items()}


def _times(before: Sequence[int], now: Sequence[int]) -> Times:
    counts = [new - old for new, old in zip(now, before, strict=True)]
    p50, p95, p99 = (percentile_of(counts, SECONDS, share) for share in (0.5, 0.95, 0.99))
    return p50, p95, p99
