"""Results, plans and profiles as tables for people."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET
from rich.table import Table

from gearshift.cli.common.output import EXIT_NOT_VALID, Output, table
from gearshift.gear import GearPlan, PipelinePlan
from gearshift.plans.prices import price_per_hour
from gearshift.profiles.profile import PART_A, PART_B, Overheads, Profile, RunTimeCurve
from gearshift.reporting.cost import beside_own, money_or_nothing, per_million
from gearshift.reporting.gear_rows import GearRow, gear_rows, top_of
from gearshift.reporting.headline import percentile_name
from gearshift.result import ServingResult
from gearshift.support import numbers
from gearshift.support.numbers import digits

if TYPE_CHECKING:
    from gearshift.load_generator.replay_result import Replay
    from gearshift.planner.largest_alone import LargestAlone
    from gearshift.simulator.as_ran import LatencySplit
    from gearshift.simulator.flow import PipelineFlow
    from gearshift.verbs.rows.validate import Errors, Validation

MOST_NAMED = 6
RESULT_COLUMNS = "accuracy", "p50", "p95", "p99", "late"
UNMEASURED = "-"
ALL_CLASSES = "accuracy", "agreement"
NO_LABELS = "there are no labels: accuracy is agreement with the strongest model"
THIS_TRACE_ALONE = (
    "--scope trace: the objective is kept on this trace alone, and other hours of the same traffic may miss it; "
    "leave it out for plans that keep it in every load range"
)


def results_table(title: str, rows: Sequence[tuple[str, ServingResult]]) -> Table:
    counted = ", ".join(str(count) for count in dict.fromkeys(result.requests for _, result in rows))
    extra = _extra_shares([result for _, result in rows])
    held = any(result.core_s is not None for _, result in rows)
    columns = ("", "accuracy", "p50", "p95", "p99", "late", *extra, "goodput")
    made = table(f"{title}, {counted} requests", *columns, *(("core-seconds",) if held else ()))
    if len(extra) > 1:
        made.padding = (0, 1, 0, 0)
    for name, result in rows:
        made.add_row(
            name,
            *figures(result),
            *(percent(_share(result, field)) for field in extra.values()),
            f"{result.goodput_qps:.1f}/s",
            *(("" if result.core_s is None else f"{result.core_s:.1f}",) if held else ()),
        )
    return made


def figures(result: ServingResult) -> tuple[str, ...]:
    """Accuracy, p50, p95, p99, and the share late."""
    latency = result.latency_s
    times = map(milliseconds, (latency.p50, latency.p95, latency.p99))
    return percent(result.accuracy), *times, percent(result.share_late)


def flow_table(name: str, flow: "PipelineFlow") -> Table:
    """The nodes of a pipeline in a run, with the edges to each."""
    made = table(f"Nodes of {name}", "node", "after", "items a request", "answered by", "share of time")
    made.columns[1].justify = made.columns[3].justify = "left"
    for node, found in flow.nodes.items():
        before = [f"{edge.from_}{f' if {edge.when}' if edge.when else ''}" for edge in flow.edges if edge.to == node]
        answered = ", ".join(f"{model} {percent(share)}" for model, share in found.answered.items())
        made.add_row(node, ", ".join(before), f"{digits(found.items)}", answered, percent(found.share_of_time))
    return made


def validation_table(run: "Validation") -> Table:
    errors = run.errors
    made = results_table("Predicted and measured", [("predicted", run.predicted), ("measured", run.measured)])
    made.add_row(
        "predicted too much",
        f"{100 * errors.accuracy:+.2f}",
        signed_percent(errors.p50),
        signed_percent(errors.p95),
        signed_percent(errors.p99),
        f"{100 * errors.share_late:+.2f}",
        *(f"{100 * _share(errors, field):+.2f}" for field in _extra_shares([run.predicted, run.measured]).values()),
    )
    return made


def _extra_shares(results: Sequence[ServingResult]) -> dict[str, str]:
    shares = {"degraded": "share_degraded", "refused": "share_refused", "by time": "share_by_time"}
    return {name: field for name, field in shares.items() if any(_share(result, field) for result in results)}


def _share(of: "ServingResult | Errors", field: str) -> float:
    """A share, or the error of one; 0 where it was not recorded."""
    share = getattr(of, field)
    return 0.0 if share is UNSET else float(share)


def runs_table(run: "Validation") -> Table:
    made = table("Models", "", "samples a request", "predicted too many", "mean batch", "predicted too large")
    for model, errors in run.errors.models.items():
        ran = run.replay.runs.get(model)
        samples, batches = (0, 0) if ran is None else (ran.samples, ran.batches)
        made.add_row(
            model,
            f"{samples / run.measured.requests:.3f}",
            f"{errors.samples_per_request:+.3f}",
            f"{samples / max(1, batches):.2f}",
            signed_percent(errors.mean_batch),
        )
    return made


def split_table(split: "LatencySplit") -> Table:
    made = table("Where latency differs", "", "p50", "p95", "p99")
    for name, seconds in (
        ("predicted for the trace", split.predicted),
        ("sent later than due", split.generator),
        ("run times other than profiled", split.run_times),
        ("the rest", split.rest),
        ("measured", split.measured),
    ):
        whole = seconds in (split.predicted, split.measured)
        made.add_row(name, *(milliseconds(each) if whole else signed_milliseconds(each) for each in seconds))
    return made


def ratios_told(split: "LatencySplit") -> str:
    told = ", ".join(f"{model} {signed_percent(ratio - 1)}" for model, ratio in split.ratios.items())
    return f"run times against the profile: {told or 'unknown'}"


def tell_generator(output: Output, run: "Replay") -> None:
    """Report the load generator; exits with `EXIT_NOT_VALID` if the figures are not valid."""
    late = run.lateness
    output.say(
        f"the generator sent {milliseconds(late.p50_s)} late (p50), {milliseconds(late.p99_s)} (p99), "
        f"{milliseconds(late.max_s)} at most; {percent(late.share_over)} later than {milliseconds(late.limit_s)}"
    )
    microseconds = 1e6 * run.effort.processor_s / run.result.requests
    output.say(f"it took {microseconds:.0f} us of processor a request")
    tell_warnings(output, run.warnings)
    if not run.valid:
        output.say(f"not valid: {run.why_invalid}")
        raise SystemExit(EXIT_NOT_VALID)


def show_gears(output: Output, plan: GearPlan, operator: str) -> None:
    pooled = ("cores",) if plan.hardware.pool_cores is not None else ()
    latency = percentile_name(plan.pipelines[operator].objective)
    columns = ("gear", "cascade", "load from", "to", "accuracy", latency, "largest batch", "busy", *pooled)
    made = table(f"Gears of {operator}", *columns)
    made.columns[1].justify = "left"
    rows = gear_rows(plan, operator)
    for row in rows:
        predicted, load_range = row.predicted, row.load_range
        made.add_row(
            row.numbers,
            row.cascade,
            f"{digits(load_range.from_)}/s",
            "" if load_range.to is None else f"{digits(load_range.to)}/s",
            "" if predicted is None else percent(predicted.accuracy),
            "" if predicted is None else predicted_latency(row),
            row.largest_batch,
            "" if predicted is None else percent(predicted.utilisation),
            *(row.cores for _ in pooled),
        )
    output.show(made)
    if (beyond := beyond_the_top(rows)) is not None:
        output.say(beyond)


def devices_table(plan: GearPlan, largest: "LargestAlone | None") -> Table:
    """The plan beside other numbers of devices, and beside the largest model alone."""
    priced, own = price_per_hour(plan.hardware) is not None, plan.predictions[plan.name]
    columns = ("an hour", "a million") if priced else ()
    made = table("Devices and cost" if priced else "Devices", "", "devices", *columns, *RESULT_COLUMNS)
    known: list[tuple[str, int, float | None, ServingResult | None]] = []
    count, others = len(plan.hardware.devices), () if plan.what_if is UNSET else plan.what_if
    known += [("this plan", count, price_per_hour(plan.hardware), own)]
    known += [(beside_own(one.devices, count), one.devices, one.price_per_hour, one.predicted) for one in others]

    def costs(devices: int, price: float | None) -> tuple[str, ...]:
        return str(devices), *((money_or_nothing(price), money_or_nothing(per_million(price, own))) if priced else ())

    for name, devices, price, found in sorted(known, key=lambda row: row[1]):
        shown = ("no plan", *[""] * 4) if found is None else figures(found)
        made.add_row(name, *costs(devices, price), *shown)
    if largest is not None and largest.devices is not None:
        alone = costs(largest.devices, largest.price_per_hour)
        made.add_row(f"{largest.model} alone", *alone, percent(largest.accuracy))
    return made


def predicted_latency(row: GearRow) -> str:
    """Latency at the objective's percentile, with its load unless that is the gears' upper end."""
    if row.predicted is None:
        return ""
    at_qps = row.predicted_elsewhere_qps
    return milliseconds(row.predicted.latency_p95_s) + ("" if at_qps is None else f" at {digits(at_qps)}/s")


def beyond_the_top(rows: Sequence[GearRow]) -> str | None:
    top_qps = top_of([gear for row in rows for gear in row.gears])
    if top_qps is None:
        return None
    return f"gears above {digits(top_qps)}/s are for short peaks above the planned load: nothing is promised there"


def profile_table(profile: Profile) -> Table:
    titles = [title.format("accuracy" if profile.predictions.labelled else "agreement") for title in PROFILE_COLUMNS]
    made = table("Models", *titles)
    for curve in profile.whole_curves:
        made.add_row(*(cell(profile, curve) for cell in PROFILE_COLUMNS.values()))
    return made


def _judged(profile: Profile, curve: RunTimeCurve, part: int) -> str:
    """Nothing for an only model without labels: it could only agree with itself."""
    records = profile.predictions
    if not records.labelled and len(profile.models) == 1:
        return UNMEASURED
    return percent(float(records.quality[records.models.index(curve.model)][records.part == part].mean()))


def tell_overheads(output: Output, overheads: Overheads) -> None:
    told = []
    if overheads.front_end_s:
        router = f", {milliseconds(overheads.router_s)} of it in the router" if overheads.router_s else ""
        told.append(f"{milliseconds(overheads.front_end_s)} a request in the front end{router}")
    for name, seconds in (("batch", overheads.per_batch_s), ("sample", overheads.per_sample_s)):
        if any(seconds.values()):
            told.append(f"{_by_model(seconds)} a {name}")
    if told:
        output.say(f"measured outside the models, and part of every prediction: {'; '.join(told)}")


def _by_model(seconds: Mapping[str, float]) -> str:
    if len(seconds) > MOST_NAMED:
        return f"{milliseconds(min(seconds.values()))} to {milliseconds(max(seconds.values()))}"
    return ", ".join(f"{milliseconds(each)} ({model})" for model, each in seconds.items())


def tell_warnings(output: Output, warnings: Sequence[str]) -> None:
    for sentence in warnings:
        output.say(f"warning: {sentence}")


def tell_certificate(output: Output, pipeline: PipelinePlan) -> None:
    """A line for each level that is certified, if any is."""
    certificate = pipeline.certificate
    if certificate is UNSET:
        return
    for level in certificate.levels:
        of = "" if pipeline.objective.positive is UNSET or level.measure in ALL_CLASSES else pipeline.objective.positive
        output.say(
            f"certified with confidence {certificate.confidence:g}: {level.measure}{f' of {of!r}' if of else ''} is at "
            f"least {level.level:g} in each gear; {level.labels} labels show {level.bound:.4g} for the closest"
        )


def _smallest_batch(curve: RunTimeCurve) -> str:
    """Its run time; batches below the smallest that was measured have none."""
    size = curve.batch_sizes[0]
    return milliseconds(curve.seconds(size)) + ("" if size == 1 else f" (batch {size})")


def _place_of(profile: Profile, curve: RunTimeCurve) -> str:
    segments = len(profile.segments_like(curve))
    parallel = f" tp{curve.tensor_parallel}" if curve.tensor_parallel > 1 else ""
    together = f", {segments} segments" if segments > 1 else ""
    return f"{curve.device_kind} x{curve.cores}{parallel}{together}"


PROFILE_COLUMNS: dict[str, Callable[[Profile, RunTimeCurve], str]] = {
    "model": lambda _, curve: curve.model,
    "device": _place_of,
    "batch 1": lambda _, curve: _smallest_batch(curve),
    "largest batch": lambda _, curve: str(curve.largest_batch_size),
    "a sample there": lambda _, curve: milliseconds(curve.seconds(curve.largest_batch_size) / curve.largest_batch_size),
    "{} A": lambda profile, curve: _judged(profile, curve, PART_A),
    "B": lambda profile, curve: _judged(profile, curve, PART_B),
    "memory": lambda _, curve: f"{curve.memory_bytes / 2**20:.0f} MiB" if curve.memory_bytes else UNMEASURED,
}
"""The cells of a profile's table, by title, of which {} is what answers are judged by."""


def signed_percent(share: float) -> str:
    return f"{100 * share:+.1f} %"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def milliseconds(seconds: float) -> str:
    """As on pages, in seconds from the first one on."""
    return numbers.milliseconds(seconds) if seconds < 0.9995 else f"{seconds:,.2f} s"


def signed_milliseconds(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{milliseconds(abs(seconds))}"
