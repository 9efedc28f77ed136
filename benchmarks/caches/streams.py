"""Learned caches on streams with class locality, with and without adaptation: gain, agreement, shifts, sweeps.

Caches are built from some images, adaptation and scoring use disjoint halves of others.  Sample by sample the model
with adapting caches, the same caches without adaptation, and the base model answer in turn.  Windows and intervals
count samples; retraining and labelling happen between samples and are reported apart.  Audits of the scored samples
run as they would in serving, and may switch caches off.  The base model runs as it is, with caches its batch norms are
folded, so a gain over it is folding's in part, one over static caches is not.

Two streams shift: one has noise on all its images, in the other half of the classes come only after a third of it, and
its caches were built without them.  After each stream, what the cache after each block makes of its last window.

    python -m benchmarks.caches.streams [--cifar resnet56 --data DIR --work caches-work] [--samples N]
                                        [--streams 3 noise] [--no-sweeps] [--quick]

Without --cifar it takes a residual network on scikit-learn's digits: some ten minutes.  With it the base model that
`cifar.py` fine-tuned in --work is used, and explored variants are taken from there; by count of operations some
40 minutes for resnet56 on one core.  `--quick` takes a minute and shows only that it works.
"""

import argparse
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import torch

from benchmarks.caches.tasks import add_exploring, copies_of, digit_networks
from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.class_local_streams import class_local_stream, corrupted, halves
from benchmarks.shared.machine import describe
from gearshift import caches
from gearshift.caches.adapting.adapter import Adapter, open_adapter
from gearshift.caches.adapting.settings import Adaptation
from gearshift.caches.running.cached_model import CachedModel
from gearshift.caches.store.manifest import CLASS_MIX
from gearshift.support.processors import give_way_to_all

TARGET = 0.97
EXPONENTS = (1.5, 3.0)
BARS = {1.5: 3.2, 3.0: 3.6}
LEAST_OVER_STATIC, LEAST_OVER_STATIC_CORRUPTED = 1.5, 3.0
LONGEST_RETRAINING_S = 10.0
"""At the lowest priority, on one core."""
BASE_EVERY = 5
WARM_UP = 20
UNSEEN = (5, 6, 7, 8, 9)
"""Classes that come after the shift alone."""


def noisy(images: np.ndarray, seed: int) -> np.ndarray:
    """Images with pixels in [0, 1] under noise."""
    return corrupted(images, kind="noise", strength=0.25, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A base model, the folder of its caches, images that neither has seen, and how the streams are to be.

    `without` builds caches without the classes `UNSEEN`, and answers their folder.  `corrupt` puts noise on images, as
    the model takes them.
    """

    network: torch.nn.Module
    folder: Path
    without: Callable[[], Path]
    images: np.ndarray
    labels: np.ndarray
    samples: int
    class_window: int
    adaptation: Adaptation
    corrupt: Callable[[np.ndarray, int], np.ndarray] = noisy

    @property
    def shift_at(self) -> int:
        """The window's begin after a third of the stream, where unseen classes begin to come."""
        return max(1, self.samples // self.class_window // 3) * self.class_window


@dataclass(kw_only=True)
class Run:
    """Seconds and exits of every scored sample, and whether the base model agrees; base times of some.

    `retraining_s` is what one more retraining takes at the end of the stream, at the lowest priority on one core;
    `blocks` and `static_blocks` are what caches make of the last window.
    """

    adapted_s: np.ndarray
    static_s: np.ndarray
    base_s: np.ndarray
    agree: np.ndarray
    static_agree: np.ndarray
    exits: np.ndarray
    static_exits: np.ndarray
    adapter: Adapter
    told: list[dict[str, object]]
    retraining_s: float = float("nan")
    blocks: dict[str, tuple[float, float]] = field(default_factory=dict)
    static_blocks: dict[str, tuple[float, float]] = field(default_factory=dict)

    def agreement_by_window(self, size: int) -> list[float]:
        """Agreement in each window of so many samples, in their order."""
        return [float(self.agree[begin : begin + size].mean()) for begin in range(0, len(self.agree), size)]

    def after(self, share: float) -> slice:
        """The samples after that share of the stream."""
        return slice(int(share * len(self.adapted_s)), None)


def timed(model: CachedModel, row: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
    """Seconds of one row, and the answer."""
    began = time.perf_counter()
    answer = model.predict(row[None])
    return time.perf_counter() - began, answer


def by_block(model: CachedModel, images: np.ndarray) -> dict[str, tuple[float, float]]:
    """How often each cache that is looked up chooses what the base model does, and its hit rate, each on all images."""
    found = {}
    with torch.inference_mode():
        hidden = list(model.chain.hidden(torch.from_numpy(images)))
        best = hidden[-1].argmax(dim=1)
        for layer, one in sorted(model.caches.items()):
            probabilities, hits = one(hidden[layer])
            right = (probabilities.argmax(dim=1) == best).float()
            found[model.chain.names[layer]] = float(right.mean()), float(hits.float().mean())
    return found


def run(
    case: Case, *, exponent: float, settings: Adaptation, corrupt: bool = False, unseen: bool = False, seed: int = 0
) -> Run:
    """One stream; `corrupt` has noise on all its images, `unseen` some classes only after the shift."""
    learn, score = halves(case.labels)
    late = {"unseen": UNSEEN, "shift_at": case.shift_at} if unseen else {}
    ours, theirs = (
        class_local_stream(
            case.labels[half], case.samples, exponent=exponent, window=case.class_window, seed=seed, **late
        )
        for half in (learn, score)
    )
    images = case.corrupt(case.images, seed) if corrupt else case.images
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "caches"
        built = case.without() if unseen else case.folder
        shutil.copytree(built, folder, ignore=shutil.ignore_patterns("exploration", "versions", "state.json"))
        told: list[dict[str, object]] = []
        model, static = caches.load(folder, case.network), caches.load(folder, case.network)
        adapter = open_adapter(
            model, settings, seed=seed, tell=lambda event, **facts: told.append({"event": event, **facts})
        )
        while adapter.step(0.0):
            pass  # samples of the build, which a server sees while it waits for work
        last, generator = len(model.chain) - 1, np.random.default_rng([seed, 11])
        for row in images[:WARM_UP]:
            timed(model, row), timed(static, row), timed_base(case.network, row)
        made = Run(
            adapted_s=np.zeros(case.samples), static_s=np.zeros(case.samples), base_s=np.zeros(0),
            agree=np.zeros(case.samples, bool), static_agree=np.zeros(case.samples, bool),
            exits=np.zeros(case.samples, int), static_exits=np.zeros(case.samples, int), adapter=adapter, told=told,
        )  # fmt: skip
        base_s, best = [], base_classes(case.network, images[score[theirs.rows]])
        for i in range(case.samples):
            row = images[score[theirs.rows[i]]]
            made.adapted_s[i], answer = timed(model, row)
            made.static_s[i], plain = timed(static, row)
            if i % BASE_EVERY == 0:
                base_s.append(timed_base(case.network, row))
            made.exits[i], made.static_exits[i] = int(answer["exit_segment"][0]), int(plain["exit_segment"][0])
            label = int(answer["scores"][0].argmax())
            made.agree[i], made.static_agree[i] = label == best[i], int(plain["scores"][0].argmax()) == best[i]
            if generator.random() < settings.audit_share:
                adapter.audit(row, made.exits[i], label)
            if generator.random() < settings.learn_share:
                sample = images[learn[ours.rows[i]]]
                said = model.predict(sample[None])
                left = int(said["exit_segment"][0])
                adapter.learn(sample, left, float(i), said["scores"][0] if left == last else None)
            while adapter.step(float(i)):
                pass
        last_window = images[score[theirs.rows[-case.class_window :]]]
        made = replace(
            made, base_s=np.array(base_s), told=list(told),
            blocks=by_block(model, last_window), static_blocks=by_block(static, last_window),
        )  # fmt: skip
        return replace(made, retraining_s=at_lowest_priority(adapter, float(case.samples)))


def at_lowest_priority(adapter: Adapter, now_s: float) -> float:
    """Seconds of one retraining on one core, labels at hand; NaN where nothing comes of it."""
    with ThreadPoolExecutor(1, initializer=_give_way) as thread:  # priorities and cores are of threads
        before = adapter.counts.retraining_s
        outcome = thread.submit(adapter.retrain, "measured", now_s).result()
    return adapter.counts.retraining_s - before if outcome in ("swapped", "worse") else float("nan")


def _give_way() -> None:
    give_way_to_all()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def timed_base(network: torch.nn.Module, row: np.ndarray) -> float:
    """Seconds of one row through the base model."""
    began = time.perf_counter()
    with torch.inference_mode():
        network(torch.from_numpy(row[None]))
    return time.perf_counter() - began


def base_classes(network: torch.nn.Module, images: np.ndarray) -> np.ndarray:
    """What the base model chooses."""
    with torch.inference_mode():
        parts = [network(torch.from_numpy(images[i : i + 64])).argmax(dim=1).numpy() for i in range(0, len(images), 64)]
    return np.concatenate(parts)


def line(name: str, made: Run, part: slice, last: int) -> str:
    """What a part of a stream came to."""
    base, adapted, static = made.base_s.mean(), made.adapted_s[part].mean(), made.static_s[part].mean()
    early, static_early = (made.exits[part] < last).mean(), (made.static_exits[part] < last).mean()
    return (
        f"| {name} | {1e3 * base:.3f} | {1e3 * static:.3f} | {1e3 * adapted:.3f} | {base / static:.2f} | "
        f"{base / adapted:.2f} | {static / adapted:.2f} | {static_early:.1%} | {early:.1%} | "
        f"{made.static_agree[part].mean():.2%} | {made.agree[part].mean():.2%} |"
    )


HEAD = (
    "| stream | base ms | static ms | adapted ms | static gain | adapted gain | over static | static hits | hits | "
    "static agrees | agrees |\n" + "|---" * 11 + "|"
)


def work_of(made: Run) -> str:
    """What adaptation did beside."""
    counts = made.adapter.counts
    reasons = [event["reason"] == CLASS_MIX for event in made.told if event["event"] == "cache_retraining"]
    done = [event for event in made.told if event["event"] == "cache_retrained"]
    sets, trained = (
        [one for one, is_set in zip(done, reasons, strict=True) if is_set == kind] for kind in (True, False)
    )
    sets_s, trained_s = ([float(one["took_s"]) for one in events] for events in (sets, trained))  # type: ignore[arg-type]
    off = [event["block"] for event in made.told if event["event"] == "cache_off"]
    return (
        f"{len(trained)} retrainings, {_count(trained, 'swapped')} swapped in, the longest "
        f"{max(trained_s, default=0.0):.2f} s, one more at the lowest priority on one core {made.retraining_s:.2f} s; "
        f"set for other classes {len(sets)} times, {_count(sets, 'set')} swapped in, "
        f"{np.median(sets_s or [0.0]):.2f} s in the median; {counts.base_runs} base runs beside, "
        f"{counts.partial_runs} of a part ({counts.base_run_s:.1f} s), {counts.reused} answers of misses reused; "
        f"{counts.audited} audited, {counts.disagreed} disagreed; caches off: {off}"
    )


def _count(events: list[dict[str, object]], outcome: str) -> int:
    return sum(event["outcome"] == outcome for event in events)


def blocks_of(made: Run) -> str:
    """The caches after each block on the last window, with and without adaptation (the paper's Table 7)."""
    if not made.static_blocks and not made.blocks:
        return "no cache is looked up"
    lines = ["| block | static right | hits | adapted right | hits |", "|---" * 5 + "|"]
    for block in dict.fromkeys((*made.static_blocks, *made.blocks)):
        each = (found.get(block) for found in (made.static_blocks, made.blocks))
        cells = ("not looked up | " if one is None else f"{one[0]:.1%} | {one[1]:.1%}" for one in each)
        lines.append(f"| {block} | {' | '.join(cells)} |")
    return "\n".join(lines)


def judge(bars: Bars, name: str, made: Run, class_window: int) -> None:
    """What every stream is judged by: agreement in each window of it, and the time to retrain."""
    windows = made.agreement_by_window(class_window)
    print("agreement by window: " + ", ".join(f"{share:.1%}" for share in windows))
    print(f"below {TARGET:.0%} in {sum(share < TARGET for share in windows)} of {len(windows)} windows\n")
    bars.at_least(f"{name}, agreement in the worst of {len(windows)} windows", min(windows), TARGET)
    bars.at_most(f"{name}, retraining at the lowest priority, s", made.retraining_s, LONGEST_RETRAINING_S)


STREAMS = ("1.5", "3", "noise", "unseen")


def report(case: Case, quick: bool, streams: Sequence[str], with_sweeps: bool) -> Bars:
    """All tables, and what was judged."""
    bars = Bars()
    last = len(caches.load(case.folder, case.network).chain) - 1
    settings = case.adaptation

    print(f"\n## Class locality, {case.samples} samples, another dominant class every {case.class_window}\n\n{HEAD}")
    for exponent in [one for one in EXPONENTS if f"{one:g}" in streams]:
        made = run(case, exponent=exponent, settings=settings)
        part = made.after(0.25)
        print(line(f"exponent {exponent:g}, all", made, slice(None), last))
        print(line(f"exponent {exponent:g}, after the first quarter", made, part, last))
        print(f"\n{work_of(made)}\n\n{blocks_of(made)}\n")
        adapted, static = made.adapted_s[part].mean(), made.static_s[part].mean()
        bars.at_least(f"exponent {exponent:g}, gain", made.base_s.mean() / adapted, BARS[exponent])
        bars.at_least(f"exponent {exponent:g}, over static", static / adapted, LEAST_OVER_STATIC)
        judge(bars, f"exponent {exponent:g}", made, case.class_window)
    if "noise" in streams:
        noise(case, bars, last)
    if "unseen" in streams:
        unseen_classes(case, bars, last)
    for what, values in sweeps(settings, quick) if with_sweeps else ():
        print(f"\n## {what}, exponent {EXPONENTS[0]:g}\n\n{HEAD}")
        for told, changed in values:
            made = run(case, exponent=EXPONENTS[0], settings=changed)
            print(line(told, made, made.after(0.25), last))
    return bars


def noise(case: Case, bars: Bars, last: int) -> None:
    """A stream of corrupted images alone."""
    print(f"\n## Corrupted images (noise)\n\n{HEAD}")
    made = run(case, exponent=EXPONENTS[0], settings=case.adaptation, corrupt=True)
    part = made.after(min(0.5, 1.5 * case.adaptation.interval_s / case.samples))
    print(line("all", made, slice(None), last))
    print(line("after one retraining", made, part, last))
    print(f"\n{work_of(made)}\n\n{blocks_of(made)}\n")
    adapted, static = made.adapted_s[part].mean(), made.static_s[part].mean()
    bars.at_least("corrupted, over static", static / adapted, LEAST_OVER_STATIC_CORRUPTED)
    judge(bars, "corrupted", made, case.class_window)


def unseen_classes(case: Case, bars: Bars, last: int) -> None:
    """A stream in which classes come that caches were built without."""
    shift = case.shift_at
    retrained = shift + min(int(1.5 * case.adaptation.interval_s), (case.samples - shift) // 2)
    print(f"\n## Classes unseen in building, from sample {shift} on\n\n{HEAD}")
    made = run(case, exponent=EXPONENTS[0], settings=case.adaptation, unseen=True)
    print(line("before the shift", made, slice(0, shift), last))
    print(line("from the shift to one retraining", made, slice(shift, retrained), last))
    print(line("after it", made, slice(retrained, None), last))
    print(f"\n{work_of(made)}\n\n{blocks_of(made)}\n")
    judge(bars, "unseen classes", made, case.class_window)


def sweeps(settings: Adaptation, quick: bool) -> Iterator[tuple[str, list[tuple[str, Adaptation]]]]:
    """Sampling rates and intervals, as in the paper's 7.2.2."""
    shares = (0.2,) if quick else (0.02, 0.05, 0.1, 0.2, 0.4)
    factors = (1.0,) if quick else (0.5, 1.0, 2.0, 4.0)
    yield "Sampling rate", [(f"{s:.0%}", msgspec.structs.replace(settings, learn_share=s)) for s in shares]
    changed = [msgspec.structs.replace(settings, interval_s=settings.interval_s * f) for f in factors]
    yield "Interval", [(f"{one.interval_s:g} samples", one) for one in changed]


def seen_of(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Those of classes that come from the beginning."""
    rows = ~np.isin(labels, UNSEEN)
    return images[rows], labels[rows]


def digits_case(folder: Path, explored: dict[str, Any], quick: bool) -> Case:
    """The example's network on digits, with predictors so small that they are in need of help."""
    images, labels = digit_networks.digits()
    torch.manual_seed(0)
    network = digit_networks.trained(digit_networks.Network(blocks=8, width=16), images[:500], labels[:500], epochs=6)
    more = {"training": caches.Training(epochs=3)} if quick else {}
    build, more = (images[500:1000], labels[500:1000]), more | {"variants": ("Pool(64,8)",)} | explored
    caches.build(network, *build, accuracy=TARGET, out=folder / "digits", **more)

    def without() -> Path:
        caches.build(network, *seen_of(*build), accuracy=TARGET, out=folder / "digits-seen", **more)
        return folder / "digits-seen"

    return Case(
        network=network, folder=folder / "digits", without=without,
        images=images[1000:], labels=labels[1000:],
        samples=800 if quick else 6000, class_window=400 if quick else 900,
        adaptation=Adaptation(
            window_s=3600, interval_s=300, half_life_s=1800, audit_share=0.02, least_samples=40
        ),
    )  # fmt: skip


def cifar_case(name: str, data: Path, work: Path, epochs: int, explored: dict[str, Any], quick: bool) -> Case:
    """A ResNet on CIFAR-10 as `cifar.py` left it."""
    from benchmarks.caches.cifar import quick_blocks
    from benchmarks.shared.cifar_networks import fine_tuned, home_of, images_of, normalised, pixels_of

    home = home_of(work, quick=quick)
    epochs, most, count = (1, 256, 300) if quick else (epochs, None, 5000)
    network = fine_tuned(name, data, home, epochs=epochs, most=most)
    images, labels = images_of(data, "test", 2 * count)
    more = {"variants": ("Pool(256,32)",), "training": caches.Training(epochs=2)} if quick else {}
    more |= ({"blocks": quick_blocks(network)} if quick else {}) | explored
    build = images[:count], labels[:count]
    built = caches.build(network, *build, accuracy=TARGET, out=home / name, **more)
    chosen = tuple(dict.fromkeys(entry.variant for entry in built.manifest.chosen))
    less = more | ({"variants": chosen} if chosen else {})

    def without() -> Path:
        caches.build(network, *seen_of(*build), accuracy=TARGET, out=home / f"{name}-seen", **less)
        return home / f"{name}-seen"

    return Case(
        network=network, folder=home / name, without=without,
        images=images[count:], labels=labels[count:],
        samples=400 if quick else 10_800, class_window=200 if quick else 900,
        adaptation=Adaptation(
            window_s=3600, interval_s=100 if quick else 450, half_life_s=1800, audit_share=0.02, least_samples=30
        ),
        corrupt=lambda images, seed: normalised(noisy(pixels_of(images), seed)),
    )  # fmt: skip


def main() -> int:
    parser = parser_of(__doc__, data=True, quick="small, to show only that it works")
    parser.add_argument("--cifar", choices=("resnet20", "resnet32", "resnet44", "resnet56"))
    parser.add_argument("--work", type=Path, default=Path("caches-work"))
    parser.add_argument("--epochs", type=int, default=5, help="of fine-tuning, as for `cifar`")
    parser.add_argument("--retraining-epochs", type=int, default=Adaptation().epochs)
    add_exploring(parser)
    parser.add_argument("--recent-share", type=float, default=0.5, help="of what is learnt from, recent samples")
    parser.add_argument("--samples", type=int, help="of each stream [default: 10,800 of CIFAR-10, 6,000 of digits]")
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=STREAMS, help="by exponent, or what shifts")
    parser.add_argument("--sweeps", action=argparse.BooleanOptionalAction, default=True, help="of rate and interval")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(describe(), f"PyTorch {torch.__version__}, one thread", sep=", ")
    explored = copies_of(options.copies) | ({"variants": tuple(options.variants)} if options.variants else {})
    began = time.perf_counter()
    with TemporaryDirectory() as temporary:
        if options.cifar is None:
            case = digits_case(Path(temporary), explored, options.quick)
        else:
            case = cifar_case(options.cifar, data_of(options), options.work, options.epochs, explored, options.quick)
        adaptation = msgspec.structs.replace(
            case.adaptation, recent_share=options.recent_share, epochs=options.retraining_epochs
        )
        samples = options.samples or case.samples
        bars = report(
            replace(case, adaptation=adaptation, samples=samples), options.quick, options.streams, options.sweeps
        )
    print(f"\ntook {time.perf_counter() - began:.0f} s\n{bars}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
