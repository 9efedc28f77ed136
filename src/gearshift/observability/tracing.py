"""OpenTelemetry traces: a span per inference; below it its nodes, and its waits and runs in batches.

The library is imported when traces are asked for; its own variables (`OTEL_...`) say where they
go.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any

from gearshift import __version__
from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput
from gearshift.request import Answer, ItemFacts, Sample
from gearshift.support.extras import load_extra

EXPORTERS = "opentelemetry_traces_exporter"
OTLP = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
SERVER_FAULTS = frozenset({"INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "UNKNOWN", "UNIMPLEMENTED", "error"})
"""Statuses of gRPC, and of a stream's request, that count as errors of a server's span."""
MOST_VISITS = 16
"""Up to this many visits of a node by one request have spans of their own; more have one together."""
MOST_BATCHES = 64
"""Batches of one request at one node of a graph whose waits and runs have spans."""


class NodeVisits:
    """The visits of one request to one node of a graph: all together, and the first ones by themselves."""

    def __init__(self) -> None:
        self.count = self.failed = self.batches = 0
        self.first_ns, self.last_ns = 1 << 62, 0
        self.single: list[tuple[int, int, ItemFacts]] = []

    def add(self, item: ItemFacts, begun_ns: int, ended_ns: int) -> None:
        self.count += 1
        self.failed += bool(item.error)
        self.first_ns, self.last_ns = min(self.first_ns, begun_ns), max(self.last_ns, ended_ns)
        if self.count <= MOST_VISITS:
            self.single.append((begun_ns, ended_ns, item))


class RequestSpan:
    """The span of one request; `accepted` must be called before `stage` and `visited`."""

    def __init__(self, tracer: Any, span: Any, context: Any) -> None:
        self._tracer, self._span, self._context = tracer, span, context
        self._unix_ns = 0
        self._nodes: dict[str, NodeVisits] = defaultdict(NodeVisits)

    @property
    def trace_id(self) -> str:
        return f"{self._span.get_span_context().trace_id:032x}"

    def accepted(self, now_ns: int) -> None:
        """Link the service's clock, now at `now_ns`, to Unix time."""
        self._unix_ns = time.time_ns() - now_ns

    def stage(self, queued_ns: int, started_ns: int, ended_ns: int, attributes: Mapping[str, Any]) -> None:
        """Record that rows waited from `queued_ns`, then ran from `started_ns` to `ended_ns`."""
        model = attributes["gearshift.model"]
        for name, begin_ns, end_ns in (("queue", queued_ns, started_ns), ("run", started_ns, ended_ns)):
            self._child(f"{name} {model}", begin_ns, end_ns, attributes)

    def has_room_for_batch(self, node: str) -> bool:
        """Count a batch at a node of a graph; False if as many as have spans were counted before."""
        visits = self._nodes[node]
        visits.batches += 1
        return visits.batches <= MOST_BATCHES

    def visited(self, item: ItemFacts, now_ns: int) -> None:
        """Take an item of a graph that ends now; nodes have their spans when the request's span ends."""
        begun_ns = now_ns - round((item.queue_s + item.run_s) * NS_PER_S)
        self._nodes[item.node].add(item, begun_ns, now_ns)

    def _tell_nodes(self) -> None:
        for node, visits in self._nodes.items():
            if visits.count > len(visits.single):
                facts = {"gearshift.node": node, "gearshift.items": visits.count, "gearshift.failed": visits.failed}
                self._child(f"node {node}", visits.first_ns, visits.last_ns, facts)
                continue
            for begun_ns, ended_ns, item in visits.single:
                self._child(f"node {node}", begun_ns, ended_ns, attributes_of(item))
        left_out = sum(max(0, visits.batches - MOST_BATCHES) for visits in self._nodes.values())
        if left_out:
            self._span.set_attribute("gearshift.batches_left_out", left_out)
        self._nodes.clear()

    def _child(self, name: str, begin_ns: int, end_ns: int, attributes: Mapping[str, Any]) -> None:
        start = self._unix_ns + begin_ns
        child = self._tracer.start_span(name, context=self._context, attributes=attributes, start_time=start)
        child.end(end_time=self._unix_ns + end_ns)

    def of(self, operator: str) -> None:
        """Name the pipeline, where it is known only after the span has begun."""
        self._span.update_name(f"infer {operator}")
        self._span.set_attribute("gearshift.operator", operator)

    def answered(self, answer: Answer) -> None:
        self._span.set_attributes({"gearshift.outcome": answer.outcome, "gearshift.gear": answer.gear})
        if answer.reason:
            self._span.set_attribute("gearshift.reason", answer.reason)

    def tell(self, facts: Mapping[str, str | int | float]) -> None:
        """Add attributes to the request's span."""
        self._span.set_attributes(facts)

    def end(self, status: int | str | None, request_id: str) -> None:
        """End the span with `status`, of HTTP or of gRPC; None where the client has gone."""
        from opentelemetry.trace import StatusCode

        self._tell_nodes()
        self._span.set_attribute("gearshift.request_id", request_id)
        if status is None:
            self._span.set_attribute("gearshift.outcome", "cancelled")
        elif isinstance(status, int):
            self._span.set_attribute("http.response.status_code", status)
        else:
            self._span.set_attribute("rpc.response.status_code", status)
        if (isinstance(status, int) and status >= 500) or status in SERVER_FAULTS:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class Tracing:
    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("gearshift", __version__)

    def begin(self, operator: str, headers: Mapping[str, str], **attributes: str) -> RequestSpan:
        """Begin the span of a request to the pipeline `operator`, empty if it is not known yet.

        It lies within the trace that the request's `headers` (in lower case) name.
        """
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind, set_span_in_context

        within = extract(dict(headers))
        span = self._tracer.start_span(
            f"infer {operator}".rstrip(),
            context=within,
            kind=SpanKind.SERVER,
            attributes={"gearshift.operator": operator, **attributes},
        )
        return RequestSpan(self._tracer, span, set_span_in_context(span, within))

    def close(self) -> None:
        """Send the spans not sent yet, as long as the exporter's own time limits allow."""
        self._provider.shutdown()


def attributes_of(item: ItemFacts) -> dict[str, str | int | float]:
    """A visit of a node as attributes of its span."""
    facts: dict[str, str | int | float] = {"gearshift.node": item.node, "gearshift.row": item.row}
    facts["gearshift.outcome"] = "failed" if item.error else "answered"
    if item.error:
        facts["gearshift.reason"] = item.error
        return facts
    facts |= {"gearshift.model": item.model, "gearshift.stage": item.stage, "gearshift.certainty": item.certainty}
    return facts


def trace_batch(
    spans: Mapping[int, RequestSpan],
    samples: Sequence[Sample],
    *,
    model: str,
    replica: str,
    gears: Sequence[int],
    nodes: Sequence[str],
    size: int,
    started_ns: int,
    now_ns: int,
) -> None:
    """Add a finished batch of `size` to the `spans`, by request id, of its samples' requests.

    `gears` are those in force, by pipeline; `nodes` are named by number.

    The samples are as they were when they ran.
    """
    by_request: dict[tuple[int, int, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.request.id in spans:
            by_request[sample.request.id, sample.node, sample.stage].append(sample)
    for (request, node, stage), rows in by_request.items():
        if rows[0].scope is not None and not spans[request].has_room_for_batch(nodes[node]):
            continue
        attributes = {
            "gearshift.operator": rows[0].request.operator,
            "gearshift.gear": gears[rows[0].request.pipeline],
            "gearshift.node": nodes[node],
            "gearshift.model": model,
            "gearshift.stage": stage,
            "gearshift.replica": replica,
            "gearshift.batch_size": size,
            "gearshift.rows": len(rows),
            "gearshift.outcome": "failed" if any(row.error or row.unanswered for row in rows) else "answered",
        }
        queued_ns = min(row.entered_ns for row in rows)
        spans[request].stage(queued_ns, started_ns, now_ns, attributes)


def open_tracing() -> Tracing:
    """Open tracing to where the standard variables say; by default OTLP over HTTP, this machine.

    Raises `InvalidInput` where the extra is not installed, or no exporter has the given name.
    """
    load_extra("opentelemetry.sdk", extra="otel", where="--otel")
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({SERVICE_VERSION: __version__})
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "gearshift"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for name in (os.environ.get("OTEL_TRACES_EXPORTER") or "otlp").split(","):
        if name.strip() != "none":
            provider.add_span_processor(BatchSpanProcessor(_exporter(name.strip())))
    return Tracing(provider)


@contextmanager
def tracing_if(asked: bool) -> Iterator[Tracing | None]:
    tracing = open_tracing() if asked else None
    try:
        yield tracing
    finally:
        if tracing is not None:
            tracing.close()


def _exporter(name: str) -> Any:
    where = "OTEL_TRACES_EXPORTER"
    if name == "otlp":
        where = "OTEL_EXPORTER_OTLP_PROTOCOL"
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get(where) or "http/protobuf"
        name = OTLP.get(protocol, protocol)
    for exporter in entry_points(group=EXPORTERS, name=name):
        return exporter.load()()
    known = sorted(point.name for point in entry_points(group=EXPORTERS))
    raise InvalidInput(
        f"there is no exporter {name!r}", where=where, remedy=f"install its package, or use one of {', '.join(known)}"
    )
