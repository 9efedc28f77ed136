"""What the pages about plans share: figures and costs, other devices and models alone, results, and facts."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from msgspec import UNSET

from gearshift.gear import GearPlan, PipelinePlan, SourceFile
from gearshift.objective import Objective
from gearshift.planner.one_alone import OneAlone
from gearshift.plans.prices import price_per_hour
from gearshift.reporting.cost import beside_own, money_or_nothing, per_million
from gearshift.reporting.drawing.page import Below, Facts, Results, Table, Wide
from gearshift.reporting.headline import NAMES, cost_in_words, counted, percentile_name
from gearshift.reporting.runs import Kind, RunSeries
from gearshift.reporting.shown import Shown
from gearshift.result import OtherDevices, ServingResult
from gearshift.support.numbers import between_times, digits, milliseconds, money, percent

PROMISED = "What is promised"
ALONE = "The same devices and the same traffic, with one model in place of cascades. All of it is predicted."


def figures_of(shown: Shown, result: ServingResult) -> list[tuple[str, str, str]]:
    plan, (low, high) = shown.plan, result.accuracy_interval
    right = "accuracy" if shown.labelled else "agreement"
    name = shown.percentile if shown.percentile in ("p50", "p95", "p99") else "p95"
    latency = {"p50": result.latency_s.p50, "p95": result.latency_s.p95, "p99": result.latency_s.p99}[name]
    between = result.latency_p95_interval_s if name == "p95" else None
    spread = "" if between is None else f"{_between(*between)} in several runs; "
    figures = [
        (right, percent(result.accuracy), f"{percent(low)} to {percent(high)} (95 % sure)"),
        (name, milliseconds(latency), f"{spread}{percent(result.share_late)} late"),
    ]
    if any(pipeline.refines for pipeline in plan.pipelines.values()):
        by_time = "" if result.share_by_time is UNSET else f"{percent(result.share_by_time)} are answered by time"
        figures.append(("p50", milliseconds(result.latency_s.p50), by_time))
    if plan.hardware.pool_cores is not None:
        return [("cores", f"{plan.hardware.pool_cores}", cost_in_words(plan)), *figures]
    return [("devices", f"{len(plan.hardware.devices)}", _kinds(plan)), *cost_tiles(plan), *figures]


def _between(least_s: float, most_s: float) -> str:
    least, most = milliseconds(least_s), milliseconds(most_s)
    return most if least == most else between_times(least_s, most_s)


def _kinds(plan: GearPlan) -> str:
    kinds = Counter(device.kind for device in plan.hardware.devices)
    return ", ".join(f"{n} x {kind}" for kind, n in kinds.items())


def cost_tiles(plan: GearPlan) -> list[tuple[str, str, str]]:
    """The cost of an hour, and of a million requests, as a tile; none where it is not known."""
    price = price_per_hour(plan.hardware)
    if price is None or plan.hardware.pool_cores is not None:
        return []
    million = per_million(price, *plan.predictions.values())
    more = "" if million is None else f"{money(million)} for a million requests at this load"
    return [("an hour costs", money(price), more)]


def costs_below(shown: Shown, result: ServingResult) -> Below | None:
    """The plan beside other numbers of devices and the largest model alone; None where none is known."""
    plan, largest, price = shown.plan, shown.largest, price_per_hour(shown.plan.hardware)
    what_if = () if plan.what_if is UNSET else plan.what_if
    if plan.hardware.pool_cores is not None or (largest is None and not what_if):
        return None

    def costs(of: float | None) -> list[str]:
        return [] if price is None else [money_or_nothing(of), money_or_nothing(per_million(of, result))]

    count, rows = len(plan.hardware.devices), list[list[str | Wide]]()
    known = [OtherDevices(devices=count, price_per_hour=price, predicted=result), *what_if]
    for one in sorted(known, key=lambda one: one.devices):
        rows.append([beside_own(one.devices, count), f"{one.devices}", *costs(one.price_per_hour)])
        if one.predicted is None:
            rows[-1] = [*rows[-1][:3], Wide(one.reason, 3 if price is None else 4)]
        else:
            rows[-1] += figures(one.predicted)
    sentence = "The same load on other devices." if price is None else "What the same load would cost."
    if largest is not None and largest.devices is not None:
        within = "" if shown.slo_s is None else f"{shown.percentile} within {milliseconds(shown.slo_s)}"
        cells = [*costs(largest.price_per_hour), percent(largest.accuracy), within, ""]
        rows.append([f"{largest.model} alone", f"{largest.devices}", *cells])
        times = (largest.price_per_hour or 0.0) / price if price else 1.0
        saved = f", {digits(times)} times the cost" if times != 1.0 else ""
        needed = counted(largest.devices, "device")
        sentence = f"The largest model alone would need {needed} for the same latency at the same load{saved}."
    elif largest is not None:
        sentence = f"{largest.why[:1].upper()}{largest.why[1:]}."
    names = ("", "devices", *(() if price is None else ("an hour", "a million requests")), "accuracy", "p95", "late")
    own = beside_own(count, count)
    return Below("What else it could be", sentence, [Table(names, rows, heads=True, own=own)])


def figures(result: ServingResult) -> list[str]:
    """Accuracy, p95, and the share late."""
    return [percent(result.accuracy), milliseconds(result.latency_s.p95), percent(result.share_late)]


def alone_below(
    result: ServingResult | None, alone: Sequence[OneAlone], *, right: str, time: str, of: str = ""
) -> Below | None:
    """A plan beside one model alone on its devices; `right` and `time` name columns, `of` one of several pipelines."""
    if result is None or not alone:
        return None
    rows = [[one.name, *([Wide(one.reason, 3)] if one.predicted is None else figures(one.predicted))] for one in alone]
    own = ["this plan", *figures(result)]
    table = Table(("", right, time, "late"), [own, *rows], heads=True, own=own[0])
    return Below(f"One model alone{of}", ALONE, [table])


# Results ----------------------------------------------------------------------------------------


_FIGURES: tuple[tuple[str, Callable[[ServingResult], str]], ...] = (
    ("requests", lambda r: f"{r.requests:,}"),
    ("accuracy", lambda r: percent(r.accuracy)),
    ("p50", lambda r: milliseconds(r.latency_s.p50)),
    ("p95", lambda r: milliseconds(r.latency_s.p95)),
    ("p99", lambda r: milliseconds(r.latency_s.p99)),
    ("late", lambda r: percent(r.share_late)),
)
_SOMETIMES: tuple[tuple[str, Callable[[ServingResult], float]], ...] = (
    ("degraded", lambda r: r.share_degraded),
    ("by time", lambda r: 0.0 if r.share_by_time is UNSET else r.share_by_time),
    ("refused", lambda r: r.share_refused),
)


def results_of(plan: GearPlan, runs: Sequence[RunSeries]) -> dict[str, dict[Kind, ServingResult]]:
    """The results of each system that ran; without runs those that the plan predicts."""
    results: dict[str, dict[Kind, ServingResult]] = {}
    for run in runs:
        results.setdefault(run.name, {})[run.kind] = run.result
    return results or {name: {"predicted": result} for name, result in plan.predictions.items()}


def results_table(results: Mapping[str, Mapping[Kind, ServingResult]]) -> Results:
    """The predicted figures of each system above the measured ones."""
    of_all = [result for by_kind in results.values() for result in by_kind.values()]
    extra = [(name, share) for name, share in _SOMETIMES if any(share(result) for result in of_all)]
    columns = [*_FIGURES, *((name, lambda r, share=share: percent(share(r))) for name, share in extra)]
    kinds: tuple[Kind, ...] = ("predicted", "measured")
    systems = [
        (name, [(kind, [show(by_kind[kind]) for _, show in columns]) for kind in kinds if kind in by_kind])
        for name, by_kind in results.items()
    ]
    return Results([name for name, _ in columns], systems)


# What was assumed -------------------------------------------------------------------------------


def plan_facts(plan: GearPlan, assumed: Sequence[tuple[str, str]] = ()) -> Facts:
    copies, cost = Counter(replica.model for replica in plan.placement.replicas), cost_in_words(plan)
    return Facts(
        [
            ("planner", plan.planner + (" (search was interrupted: unfinished)" if plan.unfinished else "")),
            *((f"objective of {name}", objective_in_words(pipeline)) for name, pipeline in plan.pipelines.items()),
            ("devices", _kinds(plan) + _pool(plan)),
            *((("price", cost),) if cost and plan.hardware.pool_cores is None else ()),
            ("replicas", ", ".join(f"{n} x {model}" for model, n in copies.items())),
            *assumed,
            *_sources("profile", plan.profiles),
            *_sources("trace", plan.traces),
            ("seed", str(plan.seed)),
        ]
    )


def _sources(kind: str, sources: Mapping[str, SourceFile]) -> list[tuple[str, str]]:
    return [(kind if len(sources) == 1 else f"{kind} of {name}", _source(source)) for name, source in sources.items()]


def _source(source: SourceFile) -> str:
    path = source.path or "of no file"
    return f"{path} ({source.sha256[:12]})" if source.sha256 else path


def _pool(plan: GearPlan) -> str:
    if plan.hardware.pool_cores is None:
        return ""
    held = [f"{r.core_s:,.1f} core-seconds held" for r in plan.predictions.values() if r.core_s is not None]
    return ", ".join([f" that share {plan.hardware.pool_cores} cores", *held])


def objective_in_words(pipeline: PipelinePlan) -> str:
    scope = "in every load range" if pipeline.objective.scope == "every-range" else "over the whole trace"
    return f"{asked_in_words(pipeline.objective) or 'none'}, {scope}"


def asked_in_words(objective: Objective, right: str = "accuracy") -> str:
    parts = []
    if objective.latency_s is not None:
        metric = "" if objective.metric in (UNSET, "latency") else f"{NAMES[objective.metric]} "
        parts.append(f"{metric}{percentile_name(objective)} within {milliseconds(objective.latency_s)}")
    if objective.median_s is not UNSET:
        parts.append(f"p50 within {milliseconds(objective.median_s)}")
    if objective.accuracy is not None:
        parts.append(f"{right} of at least {percent(objective.accuracy)}")
    return " and ".join(parts)
