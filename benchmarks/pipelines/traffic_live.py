"""Gati's traffic example live: the same graph over real networks, served with replanning and without.

An image of CIFAR-10 goes through detection (animal, vehicle or nothing, which is a frog); then an animal (46 % of
images) or a vehicle (45 %) is recognised.  Each node has residual networks of several sizes; those of detection have
learned caches.  All models are on one core; router, front end and load generator are on another.

Both plans come from one profile, by `plan_pipeline` with and without `replanning`, for the latency objective and the
same bursty load.  In each round both serve the same images at the same instants, one after the other.  Quality in time:
the share of requests that are answered right at every node that they passed, and within the objective.

    python -m benchmarks.pipelines.traffic_live --data DIR --work FOLDER

What is prepared (networks, caches, profile) stays in `--work`, and is taken from there; `--prepare` does only that, and
`--profile-again` measures run times anew, as after a run beside other work.  By default networks are fine-tuned for an
epoch on some images, as published ones know no JPEG.  Where no plan keeps the objective, a longer one is tried, unless
it is given.  `--quick` shows only that it works.  Preparation needs Pillow (`pip install pillow`).
"""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from msgspec import UNSET

import gearshift
from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.cifar_networks import DEPTHS, ResNet, fine_tuned, home_of, images_of
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_head
from gearshift import caches
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner.joint.candidates import candidates_of
from gearshift.planner.joint.replanning.search import plan_pipeline
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.space.hosts import device_seconds
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.pipelines.profile_folder import Profiles, read_profiles
from gearshift.traces.generate import bursty
from gearshift.verbs.planning.graph import pipeline_request
from gearshift.verbs.profile import profile
from gearshift.verbs.rows.validate import Validation
from gearshift.verbs.validate import validate
from gearshift.workload import Trace

ROUNDS, SECONDS = 5, 20.0
LOW, HIGH = 0.3, 1.4
"""Loads between and in bursts, as shares of what the dearest models alone carry."""
MOST_OF_CHEAPEST = 0.3
"""No more than this share of what the cheapest carry: peaks are twice as high, and each range is planned for more."""
LEAST_MARGIN = 1.15
SLACKS = 2.2, 3.3, 5.0, 7.5, 12.0, 20.0
"""Objectives, as multiples of the run time of the dearest models of a path: the first that a plan keeps counts."""
MOST_DEVIATION = 0.3
"""More than this is other work on the machine, for which no plan is made."""
P95 = 1.645
"""Deviations of a normal distribution up to its 95th percentile."""
GROUPS = {"animal": (2, 3, 4, 5, 7), "vehicle": (0, 1, 8, 9), "nothing": (6,)}
SHARES = {"animal": 0.46, "vehicle": 0.45, "nothing": 0.09}
NETWORKS = {
    "detect": ("resnet20", "resnet32", "resnet56"),
    "animal": ("resnet20", "resnet32", "resnet44", "resnet56"),
    "vehicle": ("resnet20", "resnet32", "resnet44", "resnet56"),
}
BUILD, SAMPLES, AGREEMENT = 2000, 1500, 0.97
VARIANTS = ("Pool(256,32)",)

PROJECT = """[operators.answer]
function = "models.py:answer"
{operators}
[pipelines.traffic]
output = "answer"
samples = "models.py:load_samples"
edges = [
    {{from = "detect", to = "animal", when = {{output = "label", one_of = [0]}}}},
    {{from = "detect", to = "vehicle", when = {{output = "label", one_of = [1]}}}},
    {{from = "detect", to = "answer"}},
    {{from = "animal", to = "answer"}},
    {{from = "vehicle", to = "answer"}},
]

[pipelines.traffic.nodes.detect]
operator = "detect"
inputs = {{image = "image"}}

[pipelines.traffic.nodes.animal]
operator = "animal"
inputs = {{image = "image"}}

[pipelines.traffic.nodes.vehicle]
operator = "vehicle"
inputs = {{image = "image"}}

[pipelines.traffic.nodes.answer]
operator = "answer"
inputs = {{kind = "detect.label", animal = "animal.label", vehicle = "vehicle.label"}}

[profile]
batch_sizes = [1, 2, 4]
repeats = {repeats}
longest_s = {longest_s}
"""
MODELS = """import sys
from pathlib import Path

sys.path[:0] = [{root!r}]
from benchmarks.pipelines.traffic_live import loaded, samples_of

FOLDER = Path(__file__).parent


def load_samples():
    return samples_of(FOLDER)


def answer(kind, animal=None, vehicle=None):
    found = vehicle if animal is None else animal
    return {{"label": [-1] * len(kind) if found is None else [int(each) for each in found]}}
"""
LOADER = """

def load_{operator}_{network}():
    return loaded(FOLDER, {operator!r}, {network!r})
"""


class Traffic(ResNet):
    """A residual network whose ten classes are read as those of one node."""

    def __init__(self, depth: int, operator: str) -> None:
        super().__init__(depth)
        self.rows = [[*rows] for rows in GROUPS.values()] if operator == "detect" else [[c] for c in GROUPS[operator]]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores = super().forward(images)
        return torch.stack([torch.logsumexp(scores[:, rows], dim=1) for rows in self.rows], dim=1)


def network_of(folder: Path, operator: str, name: str) -> Traffic:
    network = Traffic(DEPTHS[name], operator)
    network.load_state_dict(torch.load(folder / f"{name}.pt", weights_only=True))
    return network.eval()


def loaded(folder: Path, operator: str, name: str) -> object:
    """The network of a node as a worker runs it; those of detection with their caches."""
    network = network_of(folder, operator, name)
    return caches.load(folder / f"caches-{name}", network) if operator == "detect" else network


def samples_of(folder: Path) -> gearshift.Samples:
    with np.load(folder / "samples.npz") as data:
        images, kinds, classes = data["images"], data["kinds"], data["classes"]
    nodes = {
        operator: np.array([GROUPS[operator].index(c) if c in GROUPS[operator] else -1 for c in classes.tolist()])
        for operator in ("animal", "vehicle")
    }
    right = np.where(kinds == 0, nodes["animal"], np.where(kinds == 1, nodes["vehicle"], -1))
    return gearshift.Samples({"image": images}, labels=right, node_labels={"detect": kinds, **nodes})


def draw_samples(images: np.ndarray, classes: np.ndarray, count: int, seed: int) -> dict[str, np.ndarray]:
    """Images in the shares of the example, each once."""
    generator = np.random.default_rng(seed)
    kind_of = {c: kind for kind, of_kind in enumerate(GROUPS.values()) for c in of_kind}
    kinds = np.array([kind_of[c] for c in classes.tolist()])
    drawn = [
        generator.permutation(np.flatnonzero(kinds == kind))[: round(share * count)]
        for kind, share in enumerate(SHARES.values())
    ]
    rows = generator.permutation(np.concatenate(drawn))
    return {"images": images[rows], "kinds": kinds[rows], "classes": classes[rows]}


def prepare(folder: Path, data: Path, *, epochs: int, most: int, quick: bool) -> Profiles:
    """Networks, caches, samples, project and profile, each made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "samples.npz").is_file():
        images, classes = images_of(data, "test", 1200 if quick else None)
        build = 200 if quick else BUILD
        np.savez(folder / "build.npz", images=images[:build])
        np.savez(folder / "samples.npz", **draw_samples(images[build:], classes[build:], 300 if quick else SAMPLES, 0))
    for name in sorted({name for names in NETWORKS.values() for name in names}):
        if not (folder / f"{name}.pt").is_file():
            network = fine_tuned(name, data, folder, epochs=epochs, most=most)
            torch.save(network.state_dict(), folder / f"{name}.pt")
    with np.load(folder / "build.npz") as kept:
        images = kept["images"]
    for name in NETWORKS["detect"]:
        if not (folder / f"caches-{name}" / "done").is_file():
            network, depth = network_of(folder, "detect", name), DEPTHS[name]
            blocks = [f"layer{stage}.{k}" for stage in (1, 2, 3) for k in (0, depth // 2)]
            built = caches.build(
                network,
                images,
                blocks=blocks[-2:] if quick else blocks,
                variants=VARIANTS,
                training=caches.Training(epochs=1 if quick else 5),
                accuracy=0.5 if quick else AGREEMENT,
                out=folder / f"caches-{name}",
            )
            hits = 1 - built.manifest.exits[-1]
            print(f"caches of {name}: {hits:.0%} of images hit, {built.manifest.accuracy:.1%} agree", flush=True)
            (folder / f"caches-{name}" / "done").touch()
    if not (folder / "profile").is_dir():
        write_project(folder, repeats=10 if quick else 30, longest_s=0.5 if quick else 2.0)
        profile(folder / "gearshift.toml", out=folder / "profile")
    return read_profiles(folder / "profile")


def write_project(folder: Path, *, repeats: int, longest_s: float) -> None:
    operators = "".join(
        f'\n[operators.{operator}]\ncertainty = "top_two_difference"\n'
        + "".join(
            f'\n[operators.{operator}.models.{operator}-{name}]\nload = "models.py:load_{operator}_{name}"\n'
            for name in names
        )
        for operator, names in NETWORKS.items()
    )
    (folder / "gearshift.toml").write_text(PROJECT.format(operators=operators, repeats=repeats, longest_s=longest_s))
    root = str(Path(__file__).resolve().parents[2])
    loaders = "".join(
        LOADER.format(operator=operator, network=name) for operator, names in NETWORKS.items() for name in names
    )
    (folder / "models.py").write_text(MODELS.format(root=root) + loaders)


def run_times_s(profiles: Profiles, operator: str) -> list[float]:
    return [device_seconds(curve) for curve in profiles.operators[operator].whole_curves]


def dearest_s(profiles: Profiles, operator: str) -> float:
    return max(run_times_s(profiles, operator))


def deviation_of(profiles: Profiles) -> float:
    """The variation of run times in the profile: the logarithm of p95 over median, in deviations."""
    ratios = [
        p95_s / median_s
        for operator in NETWORKS
        for curve in profiles.operators[operator].whole_curves
        for median_s, p95_s in zip(curve.median_s, curve.p95_s, strict=True)
    ]
    return min(MOST_DEVIATION, math.log(max(1.0, float(np.median(ratios)))) / P95)


def load_of(profiles: Profiles, seed: int, seconds: float) -> Trace:
    """Bursts of requests around what the dearest models carry."""
    dearest, cheapest = (
        pick(run_times_s(profiles, "detect"))
        + sum(SHARES[kind] * pick(run_times_s(profiles, kind)) for kind in ("animal", "vehicle"))
        for pick in (max, min)
    )
    high_qps = min(HIGH / dearest, MOST_OF_CHEAPEST / cheapest)
    return bursty(LOW / HIGH * high_qps, high_qps, seconds, bursts=3, seed=seed)


def request_of(folder: Path, profiles: Profiles, latency_s: float, seconds: float) -> PipelineRequest:
    request = pipeline_request(
        folder / "profile",
        load_of(profiles, 100, max(seconds, SECONDS)),
        objective=Objective(latency_s=latency_s),
        out=folder / "plan.json",
        least_margin=LEAST_MARGIN,
    )
    return replace(request, run_deviation=deviation_of(profiles))


def plans_of(request: PipelineRequest) -> tuple[GearPlan, GearPlan]:
    """The plan with replanning, and the one without."""
    front = candidates_of(request)
    return plan_pipeline(request, front), plan_pipeline(replace(request, replanning=False), front)


def planned(
    folder: Path, profiles: Profiles, latencies_s: list[float], seconds: float
) -> tuple[PipelineRequest, dict[str, GearPlan]]:
    """The request for the first latency that both plans keep, and the plans."""
    for latency_s in latencies_s:
        request = request_of(folder, profiles, latency_s, seconds)
        try:
            return request, dict(zip(("with", "without"), plans_of(request), strict=True))
        except Infeasible as error:
            print(f"within {1e3 * latency_s:.0f} ms: {error}", flush=True)
    raise SystemExit("no plan keeps any of these; give a longer --latency-ms, or profile again with less beside")


def right_in_time(run: Validation, latency_s: float) -> float:
    log = run.replay.log
    in_time = log.answered & (log.latency_s <= latency_s)
    return float(np.where(in_time, np.nan_to_num(log.quality), 0.0).mean())


def main() -> None:
    options = parser_of(__doc__, data=True, quick="small, to show only that it works")
    options.add_argument("--work", type=Path, default=Path("caches-work"))
    options.add_argument("--epochs", type=int, default=1)
    options.add_argument("--images", type=int, default=4000, help="of training, for fine-tuning")
    options.add_argument("--latency-ms", type=float)
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--seconds", type=float, default=SECONDS, help="of load in each run")
    options.add_argument("--prepare", action="store_true", help="only prepare")
    options.add_argument("--profile-again", action="store_true", help="measure run times anew")
    given = options.parse_args()
    print(describe())
    folder = home_of(given.work, quick=given.quick) / "traffic"
    most = 256 if given.quick else given.images
    if given.profile_again:
        shutil.rmtree(folder / "profile", ignore_errors=True)
    profiles = prepare(folder, data_of(given), epochs=given.epochs, most=most, quick=given.quick)
    if given.prepare:
        return
    path_s = dearest_s(profiles, "detect") + max(dearest_s(profiles, kind) for kind in ("animal", "vehicle"))
    latencies_s = [slack * path_s for slack in SLACKS] if given.latency_ms is None else [given.latency_ms / 1e3]
    request, plans = planned(folder, profiles, latencies_s, given.seconds)
    latency_s = request.latency_s
    chooses = sum(gear.timed is not UNSET for gear in plans["with"].pipeline.gears)
    print(
        f"objective {1e3 * latency_s:.0f} ms; run times vary by {100 * request.run_deviation:.1f} %; "
        f"{chooses} of {len(plans['with'].pipeline.gears)} gears choose; predicted on part B: "
        + ", ".join(f"{name} {100 * made.predictions['traffic'].accuracy:.1f} %" for name, made in plans.items())
    )
    for name, made in plans.items():
        write_plan(made, folder / f"{name}.json")
    print_head(
        "| round | requests | quality in time with replanning, % | without | late with, % | without | sent in time |"
    )
    least = 1.0
    for round_ in range(given.rounds):
        load = load_of(profiles, round_, given.seconds)
        order = list(plans) if round_ % 2 else [*plans][::-1]
        runs = {name: validate(folder / f"{name}.json", load, seed=round_) for name in order}
        got = {name: right_in_time(runs[name], latency_s) for name in plans}
        late = [100 * runs[name].replay.result.share_late for name in plans]
        least = min(least, got["with"] - got["without"])
        print(
            f"| {round_ + 1} | {len(load)} | {100 * got['with']:.1f} | {100 * got['without']:.1f} | "
            f"{late[0]:.1f} | {late[1]:.1f} | {all(run.replay.valid for run in runs.values())} |",
            flush=True,
        )
    bars = Bars()
    bars.at_least("least gain in quality in time, points", 100 * least, 0.0)
    print(f"\n{bars}")


if __name__ == "__main__":
    main()
