"""`gearshift caches`: build, show and evaluate learned caches, and choose among their versions."""

import math
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from gearshift import caches
from gearshift.caches.store.manifest import CLASS_MIX
from gearshift.cli.common.options import PATH, SEED, listed
from gearshift.cli.common.output import Output, table, verb
from gearshift.cli.common.tables import milliseconds, percent, tell_warnings
from gearshift.errors import InvalidInput, require
from gearshift.models.user_code import call_reference
from gearshift.support.extras import load_extra
from gearshift.support.files import require_writable, write_atomically
from gearshift.support.processors import usable_processors

if TYPE_CHECKING:
    from gearshift.caches.building.evaluation import Evaluation
    from gearshift.caches.store.manifest import Lookups, Manifest, Measured
    from gearshift.caches.store.versions import State

THREADS = click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Threads to time with: as many as the serving device has cores.",
)
DEVICE = click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    help="Where the module runs, as it will when it is served [default: where MODEL has put it].",
)
LOOKUPS = click.Choice(["inline", "beside"])
INPUTS, LABELS = "inputs", "labels"
RUN_AS = "base model", "norms folded", "with learned caches"
GAINS = "gain", "over folded"
SHOWN = 30
"""Rows in the terminal's table, unless all are asked for."""


@click.group("caches", short_help="Build, show and evaluate learned caches of a PyTorch module.")
def command() -> None:
    """Learned caches: small networks that answer easy samples from a model's hidden outputs."""


@command.command("build")
@click.argument("model")
@click.option("--data", type=PATH, required=True, help="A .npz file with `inputs` and, if known, `labels`.")
@click.option("--accuracy", type=float, default=0.97, show_default=True, help="Share to answer as the model does.")
@click.option("--confidence", type=float, help="Show that share with this confidence, on samples of their own.")
@click.option("--out", type=PATH, default="caches", show_default=True, help="The folder to write.")
@click.option("--blocks", type=listed, metavar="NAMES", help="Blocks to look after, between commas [default: found].")
@click.option("--variants", type=str.split, metavar="NAMES", help="Predictors to try, between spaces, as 'FC(64)'.")
@click.option("--memory-mib", type=float, help="Memory of all learned caches together, at most.")
@click.option("--most-delay", type=float, help="Share of the model's time that lookups in line may add, at most.")
@click.option("--epochs", type=click.IntRange(1, 1000), default=20, show_default=True, help="Training, at most.")
@click.option("--train-minutes", type=float, help="Begin no training after so long; the most promising come first.")
@click.option("--jobs", type=click.IntRange(min=1), help="How many train at a time [default: one per core].")
@THREADS
@DEVICE
@click.option(
    "--lookups",
    type=LOOKUPS,
    default="inline",
    show_default=True,
    help="Lookups between the module's blocks, or beside it on a core of their own.",
)
@click.option("--compile", "compiled", is_flag=True, help="Compile what lies between caches ahead of time: minutes.")
@click.option("--disk-gib", type=float, default=8.0, show_default=True, help="Hidden outputs on disk at a time.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the split and of training.")
@verb
def build(
    output: Output,
    model: str,
    data: Path,
    accuracy: float,
    confidence: float | None,
    out: Path,
    blocks: list[str] | None,
    variants: list[str] | None,
    memory_mib: float | None,
    most_delay: float | None,
    epochs: int,
    train_minutes: float | None,
    jobs: int | None,
    threads: int,
    device: str | None,
    lookups: "Lookups",
    compiled: bool,
    disk_gib: float,
    seed: int,
) -> None:
    """Build learned caches for the module that MODEL (file.py:function) returns.

    Use samples that the module was not trained on. An interrupted run resumes.
    """
    require(0 < disk_gib < math.inf, f"--disk-gib is {disk_gib:g}", remedy="give a finite size above 0, in GiB")
    inputs, labels = read_data(data)
    require_writable(out / "manifest.json")
    module = load_module(model, threads, device)
    with output.progress() as tell:
        built = caches.build(
            module,
            inputs,
            labels,
            accuracy=accuracy,
            confidence=confidence,
            blocks=blocks,
            variants=variants,
            memory_budget_bytes=np.inf if memory_mib is None else memory_mib * 2**20,
            most_delay=np.inf if most_delay is None else most_delay,
            training=caches.Training(epochs=epochs),
            lookups=lookups,
            compiled=compiled,
            out=out,
            processes=usable_processors() if jobs is None else jobs,
            most_bytes=int(disk_gib * 2**30),
            most_s=np.inf if train_minutes is None else 60 * train_minutes,
            seed=seed,
            progress=tell,
        )
    output.json(built.manifest)
    show_manifest(output, built.manifest, everything=False)
    if built.left_out:
        output.say(
            f"{built.left_out} variants were not trained for want of time; the same command with more --train-minutes "
            "goes on with them"
        )
    if built.not_compiled:
        tell_warnings(output, (f"no segments were compiled: {built.not_compiled}",))
    output.say(f"wrote {out}")


@command.command("show")
@click.argument("folder", type=PATH, default="caches")
@click.option("--all", "everything", is_flag=True, help="Every variant that was explored, or trained further.")
@click.option("--chart", type=PATH, help="Also write a page with the chart and every variant.")
@click.option("--version", "number", type=click.IntRange(min=0), help="Which one, 0 as built [default: in use].")
@verb
def show(output: Output, folder: Path, everything: bool, chart: Path | None, number: int | None) -> None:
    """Show the learned caches in FOLDER that are in use: what was explored, chosen, and why.

    Only version 0, as built, knows what was explored, and why.
    """
    from gearshift.caches.store.versions import read_state, read_version, version_numbers

    state = read_state(folder)
    shown = state.current if number is None else number
    known = version_numbers(folder)
    told = f"there is no version {shown}"
    require(shown in known, told, where=str(folder), remedy=f"use one of {', '.join(map(str, known))}")
    manifest = read_version(folder, shown)
    if chart is not None:
        from gearshift.reporting.caches import caches_page

        require_writable(chart)
        title = f"Learned caches in {folder}, version {shown}"
        write_atomically(chart, caches_page(manifest, title=title).encode())
    output.json(manifest)
    in_use = "in use" if shown == state.current else f"version {state.current} is in use"
    output.say(f"version {shown} ({_made(manifest)}), {in_use}")
    show_manifest(output, manifest, everything=everything)
    if shown == state.current:
        show_off(output, state)
    if chart is not None:
        output.say(f"wrote {chart}")


@command.command("evaluate")
@click.argument("model")
@click.option("--data", type=PATH, required=True, help="A .npz file with `inputs` and, if known, `labels`.")
@click.option("--caches", "folder", type=PATH, default="caches", show_default=True, help="The folder that was built.")
@THREADS
@DEVICE
@click.option("--lookups", type=LOOKUPS, help="Lookups in line, or beside the module [default: as built].")
@click.option("--compiled", is_flag=True, help="Run the segments that the build has compiled: machine code there.")
@click.option("--timed-rows", type=click.IntRange(min=1), default=200, show_default=True, help="Rows run one by one.")
@verb
def evaluate(
    output: Output,
    model: str,
    data: Path,
    folder: Path,
    threads: int,
    device: str | None,
    lookups: "Lookups | None",
    compiled: bool,
    timed_rows: int,
) -> None:
    """Compare the module of MODEL (file.py:function) with and without caches, on new samples."""
    from gearshift.caches.store.manifest import read_manifest

    inputs, labels = read_data(data)
    module = load_module(model, threads, device)
    model_with = caches.load(folder, module, lookups=lookups, compiled=compiled)
    found = caches.evaluate(model_with, inputs, labels, timed_rows=timed_rows)
    output.json(found)
    show_evaluation(output, found, read_manifest(folder).target)


@command.command("versions")
@click.argument("folder", type=PATH, default="caches")
@verb
def versions(output: Output, folder: Path) -> None:
    """Show the versions of the learned caches in FOLDER, how each was made, and its results."""
    show_versions(output, folder)


@command.command("rollback")
@click.argument("folder", type=PATH, default="caches")
@click.option("--to", type=click.IntRange(min=0), help="The version to use [default: the one before].")
@verb
def rollback(output: Output, folder: Path, to: int | None) -> None:
    """Use an earlier version of the learned caches in FOLDER; 0 is what was built.

    All its caches are looked up, also those that audits switched off. A server that adapts them
    follows within seconds, others when they start.
    """
    from gearshift.caches.store.versions import previous_version, switch_to

    switch_to(folder, previous_version(folder) if to is None else to)
    show_versions(output, folder)


def read_data(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Read `inputs` and any `labels`, without unpickling; raises `InvalidInput` if broken."""
    remedy = "write it with np.savez(path, inputs=..., labels=...)"
    require(path.is_file(), "no such file", where=str(path), remedy=remedy)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            require(INPUTS in arrays, f"has no array {INPUTS!r}", where=str(path), remedy=remedy)
            return arrays[INPUTS], arrays.get(LABELS)
    except InvalidInput:
        raise
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        raise InvalidInput(f"holds no arrays ({error})", where=str(path), remedy=remedy) from error


def load_module(reference: str, threads: int, device: str | None) -> Any:
    torch = load_extra("torch", extra="torch", where="learned caches")
    there = device != "cuda" or torch.cuda.is_available()
    require(there, "--device is cuda, and PyTorch finds no CUDA device", remedy="leave it out, or use cpu")
    torch.set_num_threads(threads)
    module = call_reference(reference, where="MODEL")
    told = f"answered {type(module).__name__}, no PyTorch module"
    require(isinstance(module, torch.nn.Module), told, where=reference, remedy="answer a torch.nn.Module")
    return module if device is None else module.to(device)


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
    if told := _margin(manifest):
        output.say(told)
    low, _ = manifest.accuracy_interval
    if manifest.chosen and manifest.confidence is None and low < manifest.target - 0.01:
        more = (
            f": build from {manifest.samples_for_a_point} samples to be within 1 % of the target, or ask for "
            "--confidence"
        )
        output.say(
            f"on new samples it may be as low as {percent(low)}, as {manifest.samples} tell no better"
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
    if told := _no_gain(measured):
        output.say(told)


def _gains(mean_s: float, module_s: float, folded_s: float) -> tuple[str, str]:
    return f"{module_s / mean_s:.2f}", f"{folded_s / mean_s:.2f}"


def _no_gain(measured: "Measured") -> str:
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


def _margin(manifest: "Manifest") -> str:
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
            f"{found.built_from} of these samples are among those that the caches were built from, of which they may "
            "answer more alike than of new ones"
        )
    left = ", ".join(f"{percent(share)} after {block}" for block, share in found.exits.items() if share > 0)
    output.say(f"samples leave: {left}")


def show_versions(output: Output, folder: Path) -> None:
    from gearshift.caches.store.versions import read_state, read_version, version_numbers

    state = read_state(folder)
    rows = table("Versions", "version", "in use", "made", "from", "because of", "held back", "agreement", "latency")
    told = []
    for number in version_numbers(folder):
        manifest = read_version(folder, number)
        adapted = manifest.adapted
        rows.add_row(
            str(number),
            "yes" if number == state.current else "",
            "built" if adapted is None else _local_time(adapted.at_s),
            "" if adapted is None else str(adapted.before),
            "" if adapted is None else adapted.reason,
            "" if adapted is None else str(manifest.samples),
            percent(manifest.accuracy),
            milliseconds(manifest.latency_s),
        )
        told.append(
            {
                "version": number,
                "adapted": adapted,
                "samples": manifest.samples,
                "accuracy": manifest.accuracy,
                "latency_s": manifest.latency_s,
                "exits": manifest.exits,
            }
        )
    output.json({"current": state.current, "off": state.off, "versions": told})
    output.show(rows)
    show_off(output, state)


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


def _made(manifest: "Manifest") -> str:
    adapted = manifest.adapted
    if adapted is None:
        return "as built"
    if adapted.reason == CLASS_MIX:
        return f"set for other classes {_local_time(adapted.at_s)}, from version {adapted.before}"
    return f"retrained {_local_time(adapted.at_s)} from version {adapted.before}, because of {adapted.reason}"


def _local_time(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))
