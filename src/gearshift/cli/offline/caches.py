"""`gearshift caches`: build, show and evaluate learned caches, and choose among their versions."""

import math
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from gearshift import caches
from gearshift.cli.common.option_table import PATH, listed
from gearshift.cli.common.options import SEED
from gearshift.cli.common.output import Output, table, verb
from gearshift.cli.common.tables import milliseconds, percent, tell_warnings
from gearshift.cli.views.rows.caches import local_time, made_how, show_evaluation, show_manifest, show_off
from gearshift.errors import InvalidInput, require
from gearshift.models.user_code import call_reference
from gearshift.support.extras import load_extra
from gearshift.support.files import require_writable, write_atomically
from gearshift.support.processors import usable_processors

if TYPE_CHECKING:
    from gearshift.caches.store.manifest import Lookups

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


@click.group("caches")
def command() -> None:
    """Learned caches: small networks that answer easy samples from a model's hidden outputs."""


@command.command("build")
@click.argument("model")
@click.option("--data", type=PATH, required=True, help="A .npz file with `inputs` and, if known, `labels`.")
@click.option("--accuracy", type=float, default=0.97, show_default=True, help="Share to answer as the model does.")
@click.option("--confidence", type=float, help="Show that share with this confidence, on samples of their own.")
@click.option("--out", type=PATH, default="caches", show_default=True, help="The folder to write.")
@click.option(
    "--blocks", type=listed, metavar="NAMES", help="Blocks after which to try caches, between commas [default: found]."
)
@click.option("--variants", type=str.split, metavar="NAMES", help="Predictors to try, between spaces, as 'FC(64)'.")
@click.option("--memory-mib", type=float, help="The most memory that all learned caches take together.")
@click.option("--most-delay", type=float, help="The largest share of the model's time that inline lookups may add.")
@click.option(
    "--epochs", type=click.IntRange(1, 1000), default=20, show_default=True, help="The most epochs of training."
)
@click.option("--train-minutes", type=float, help="Begin no training after this time; the most promising come first.")
@click.option("--jobs", type=click.IntRange(min=1), help="How many train at a time [default: one per core].")
@THREADS
@DEVICE
@click.option(
    "--lookups",
    type=LOOKUPS,
    default="inline",
    show_default=True,
    help="Look up between the module's blocks, or while the module runs, on a core of their own.",
)
@click.option("--compile", "compiled", is_flag=True, help="Compile the segments between caches; takes minutes.")
@click.option(
    "--disk-gib", type=float, default=8.0, show_default=True, help="The most hidden outputs on disk at a time."
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the split and of training.")
@verb
def build(
    output: Output,
    model: str,
    data: Path,
    out: Path,
    memory_mib: float | None,
    most_delay: float | None,
    epochs: int,
    train_minutes: float | None,
    jobs: int | None,
    threads: int,
    device: str | None,
    disk_gib: float,
    **options: Any,
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
            memory_budget_bytes=np.inf if memory_mib is None else memory_mib * 2**20,
            most_delay=np.inf if most_delay is None else most_delay,
            training=caches.Training(epochs=epochs),
            out=out,
            processes=usable_processors() if jobs is None else jobs,
            most_bytes=int(disk_gib * 2**30),
            most_s=np.inf if train_minutes is None else 60 * train_minutes,
            progress=tell,
            **options,
        )
    output.json(built.manifest)
    show_manifest(output, built.manifest, everything=False)
    if built.left_out:
        output.say(
            f"there was no time to train {built.left_out} variants; the same command with more --train-minutes "
            "continues with them"
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
        from gearshift.reporting.caches_page import caches_page

        require_writable(chart)
        title = f"Learned caches in {folder}, version {shown}"
        write_atomically(chart, caches_page(manifest, title=title).encode())
    output.json(manifest)
    in_use = "in use" if shown == state.current else f"version {state.current} is in use"
    output.say(f"version {shown} ({made_how(manifest)}), {in_use}")
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
@click.option("--lookups", type=LOOKUPS, help="Look up inline, or while the module runs [default: as built].")
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

    All its caches are used, also those that audits switched off. A server that adapts them
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
            "built" if adapted is None else local_time(adapted.at_s),
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
