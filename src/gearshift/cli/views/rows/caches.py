"""Learned caches as tables for people: a build or version, an evaluation, a measurement."""

import math
import time
from typing import TYPE_CHECKING

from gearshift.caches.store.manifest import CLASS_MIX
from gearshift.cli.common.output import Output, table
from gearshift.cli.common.tables import milliseconds, percent, tell_warnings

if TYPE_CHECKING:
    from gearshift.caches.building.evaluation import Evaluation
    from gearshift.caches.store.manifest import Manifest, Measured
    from gearshift.caches.store.versions import State

RUN_AS = "base model", "norms folded", "with learned caches"
GAINS = "gain", "over folded"
SHOWN = 30
"""Rows in the terminal's table, unless all are asked for."""


def show_manifest(output: Output, manifest: "Manifest", *, everything: bool) -> None:
    shown = manifest.variants if everything else (manifest.chosen or manifest.variants[:SHOWN])
    rows = table("Learned caches", "block", "variant", "level", "hits", "accuracy", "lookup", "memory", "chosen", "why")
    for entry in shown:
        rows.add_row(
            entry.block,
            entry.variant,
            percent(entry.level),
            percent(entry.hit_rate),
            percent(entry.accuracy),
            milliseconds(entry.lookup_s),
            f"{entry.memory_bytes / 2**20:.2f} MiB",
            "yes" if entry.chosen else "",
            entry.why,
        )
    output.show(rows)
    if len(shown) < len(manifest.variants):
        output.say(
            f"{len(shown)} of {len(manifest.variants)} that were explored; `gearshift caches show --all` has all"
        )
    if manifest.choices:
        show_choices(output, manifest)
    if not manifest.chosen:
        output.say(f"no learned cache makes this model faster within the target{_few(manifest)}")
    bound = "" if manifest.lower_bound is None else f" (at least {percent(manifest.lower_bound)}, with confidence)"
    kind = _judges(manifest)
    output.say(
        f"agreeing on {percent(manifest.accuracy)}{bound} of {manifest.samples} {kind}; "
        f"{percent(manifest.exits[-1])} run to the end; by segments and lookups as timed, "
        f"{milliseconds(manifest.latency_s)} instead of {milliseconds(manifest.base_s)} a row"
    )
    if manifest.compiled is not None:
        output.say(
            f"{len(manifest.compiled.spans)} spans of segments compiled in {manifest.compiled.took_s:.0f} s, for a row "
            "alone on machines of this kind; they run where the loader says `compiled=True`"
        )
    if manifest.measured is not None:
        show_measured(output, manifest.measured)
    if told := margin(manifest):
        output.say(told)
    low, _ = manifest.accuracy_interval
    if manifest.chosen and manifest.confidence is None and low < manifest.target - 0.01:
        more = (
            f"; build from {manifest.samples_for_a_point} samples to be within 1 % of the target, or ask for "
            "--confidence"
        )
        output.say(
            f"on new samples it may be as low as {percent(low)}: {manifest.samples} samples give no better estimate"
            f"{more if manifest.adapted is None else ''}"
        )


def show_measured(output: Output, measured: "Measured") -> None:
    output.say("")
    rows = table(f"Measured: {measured.rows} samples that judge, one by one and in turn", "", "mean", *GAINS)
    for name, mean_s in zip(RUN_AS, (measured.module_s, measured.folded_s, measured.cached_s), strict=True):
        rows.add_row(name, milliseconds(mean_s), *_gains(mean_s, measured.module_s, measured.folded_s))
    output.show(rows)
    if measured.compiled_s is not None:
        output.say(f"the module compiled whole takes {milliseconds(measured.compiled_s)}")
    if told := no_gain(measured):
        output.say(told)


def _gains(mean_s: float, module_s: float, folded_s: float) -> tuple[str, str]:
    return f"{module_s / mean_s:.2f}", f"{folded_s / mean_s:.2f}"


def no_gain(measured: "Measured") -> str:
    if measured.cached_s >= measured.module_s:
        return "no faster here, so serve the model without them, or ask for less --accuracy"
    if measured.compiled_s is not None and measured.cached_s >= measured.compiled_s:
        return "caches add nothing to the module compiled whole"
    if measured.cached_s >= measured.folded_s:
        return "all of the gain is folding's, which caches come with; ask for less --accuracy for one of theirs"
    return ""


def _few(manifest: "Manifest") -> str:
    from gearshift.caches.store.manifest import CHECKED_SHARE, LIKELY, samples_to_judge
    from gearshift.result import share_bound

    if manifest.confidence is not None or manifest.adapted is not None:
        return ""
    allowed = (1 - manifest.target) * manifest.samples
    likely = next((n for n in range(int(allowed) + 1) if share_bound(n, manifest.samples, LIKELY) < manifest.target), 0)
    if likely > allowed / 2:
        return ""
    few = f"; the {manifest.samples} samples that judge are few: {percent(manifest.target)} of new ones is likely"
    if likely == 0:
        needed = samples_to_judge(manifest.target)
        return (
            f"{few} from {needed} on, and that where none is answered otherwise; build from "
            f"{math.ceil(needed / CHECKED_SHARE)} samples or more, or ask for less --accuracy"
        )
    return (
        f"{few} where fewer than {likely} of them are answered otherwise; give more samples, or ask for less --accuracy"
    )


def margin(manifest: "Manifest") -> str:
    from gearshift.caches.store.manifest import must_agree

    if not manifest.chosen or manifest.confidence is not None or manifest.adapted is not None:
        return ""
    now, more = must_agree(manifest.target, manifest.samples), must_agree(manifest.target, 10 * manifest.samples)
    if now < manifest.target + 0.01:
        return ""
    return (
        f"{percent(now)} of {manifest.samples} samples that judge must be answered alike to make "
        f"{percent(manifest.target)} likely on new ones; of ten times as many {percent(more)}, which gains more"
    )


def show_choices(output: Output, manifest: "Manifest") -> None:
    output.say("")
    methods = table("Compositions", "method", "caches", "latency", "accuracy", "memory", "may be lower by", "in use")
    for choice in manifest.choices:
        methods.add_row(
            choice.method,
            str(len(choice.chosen)),
            milliseconds(choice.latency_s),
            percent(choice.accuracy),
            f"{choice.memory_bytes / 2**20:.2f} MiB",
            milliseconds(choice.gap_s) if choice.gap_s else "",
            "yes" if choice is manifest.choices[-1] else "",
        )
    output.show(methods)


def show_evaluation(output: Output, found: "Evaluation", target: float) -> None:
    rows = table(f"{found.samples} samples, {found.timed} timed", "", "mean", "p50", "p99", *GAINS, "accuracy")
    latencies = found.base_latency_s, found.folded_latency_s, found.latency_s
    accuracies = found.base_accuracy, None, found.accuracy
    for name, latency, accuracy in zip(RUN_AS, latencies, accuracies, strict=True):
        times = (milliseconds(seconds) for seconds in (latency.mean, latency.p50, latency.p99))
        gains = _gains(latency.mean, found.base_latency_s.mean, found.folded_latency_s.mean)
        rows.add_row(name, *times, *gains, "" if accuracy is None else percent(accuracy))
    output.show(rows)
    low, high = found.agreement_interval
    output.say(f"agreement {percent(found.agreement)} ({percent(low)} to {percent(high)})")
    if found.base_accuracy == 0:
        tell_warnings(output, ("the model is right on no sample; check that the labels are those of its classes",))
    if shortfall := found.shortfall(target):
        output.say(shortfall)
    if found.built_from:
        output.say(
            f"the caches were built from {found.built_from} of these samples, and may agree more often on them than on "
            "new ones"
        )
    left = ", ".join(f"{percent(share)} after {block}" for block, share in found.exits.items() if share > 0)
    output.say(f"samples leave: {left}")


def show_off(output: Output, state: "State") -> None:
    for off in state.off:
        output.say(
            f"the cache after {off.block} is switched off: the model disagreed with {off.disagreed} of {off.audited} "
            "of its hits"
        )


def _judges(manifest: "Manifest") -> str:
    if manifest.adapted is None:
        return "samples"
    if manifest.adapted.reason == CLASS_MIX:
        return "samples, counted as often as their classes come"
    return "recent samples that were held back"


def made_how(manifest: "Manifest") -> str:
    adapted = manifest.adapted
    if adapted is None:
        return "as built"
    if adapted.reason == CLASS_MIX:
        return f"set for other classes {local_time(adapted.at_s)}, from version {adapted.before}"
    return f"retrained {local_time(adapted.at_s)} from version {adapted.before}, because of {adapted.reason}"


def local_time(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))
