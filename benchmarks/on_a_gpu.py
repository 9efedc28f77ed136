"""All that needs a GPU, in one go and under eight minutes: streams, learned caches of a ResNet-18, a served cascade.

1. two networks on one device, each in a stream of its own, as the local backend runs replicas: whether what they answer
   beside each other is what they answer alone, and how much faster they are beside each other than in turn;
2. training of a ResNet-18 with 64 channels and of a small network on images that are made up here;
3. learned caches of the large one, looked up in line and beside it, and on compiled segments where time is left:
   agreement on unseen images, gain, tail;
4. both networks, and the large one with its caches, profiled, planned for, served and validated.

    python benchmarks/on_a_gpu.py [--out on-a-gpu.json] [--work DIR] [--budget-s 450] [--data DIR]
    python benchmarks/on_a_gpu.py --cpu

`--cpu` runs the same in small on processors, in a minute or two, and shows only that it works.  Nothing is fetched;
with `--data` images are those of CIFAR-10 in that folder, as for `caches/cifar.py`, and the gain is one to quote: made
up images are as easy as they were made.  The file is written after each stage, so what one of them fails at costs the
others nothing; what does not fit into the budget is skipped, and says so.  Needs `pip install 'gearshift[torch]'`, and
a PyTorch built for CUDA.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1]))
import gearshift
from benchmarks import gpu_networks
from benchmarks.shared.cifar_networks import images_of
from benchmarks.shared.machine import describe
from benchmarks.stages import Facts, Stages
from gearshift import caches
from gearshift.caches.store.manifest import Lookups
from gearshift.models.torch_module import TorchModule, own_stream
from gearshift.traces.generate import bursty

BUDGET_S = 450.0
TARGET = 0.97
LATENCY_S = 0.1
PROJECT = """
operator = "images"
samples = "networks.py:load_samples"

[profile]
device_kind = "{kind}"
batch_sizes = [1, 2, 4, 8, 16]
repeats = {repeats}
longest_s = 2.0
"""


@dataclass(frozen=True, slots=True)
class Size:
    """How large everything is; `peak_qps` is what the cascade is planned up to, at most."""

    sizes: dict[str, tuple[int, int]]
    train: int
    build: int
    test: int
    batch: int
    train_s: float
    caches_s: float
    cascade_s: float
    compile_s: float
    rows: int
    peak_qps: float
    trace_s: float
    repeats: int
    training: caches.Training
    variants: tuple[str, ...] | None = None
    processes: int = 4


GPU = Size(
    sizes={"large": (2, 64), "small": (1, 16)},
    train=30_000, build=4_000, test=3_000, batch=256, train_s=45.0, caches_s=120.0, cascade_s=130.0, compile_s=90.0,
    rows=1_000, peak_qps=600.0, trace_s=20.0, repeats=10, training=caches.Training(),
)  # fmt: skip
SMALL = Size(
    sizes={"large": (1, 8), "small": (1, 2)},
    train=1_000, build=500, test=300, batch=50, train_s=10.0, caches_s=120.0, cascade_s=120.0, compile_s=150.0,
    rows=60, peak_qps=30.0, trace_s=4.0, repeats=3, training=caches.Training(epochs=3),
    variants=("FC(16)", "Pool(64,16)"), processes=1,
)  # fmt: skip


@dataclass(slots=True)
class OnADevice:
    """What the stages share: the device, the project's folder, and the images."""

    device: torch.device
    size: Size
    folder: Path
    target: float = TARGET
    data: Path | None = None
    images: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def prepare(self) -> None:
        """Make the project's folder and the images."""
        shutil.copy(Path(gpu_networks.__file__), self.folder / "networks.py")
        gpu_networks.FOLDER = self.folder
        (self.folder / gpu_networks.SIZES).write_text(json.dumps(self.size.sizes))
        counts = {"train": self.size.train, "build": self.size.build, "test": self.size.test}
        if self.data is None:
            self.images = {part: gpu_networks.made_up(count, seed) for seed, (part, count) in enumerate(counts.items())}
        else:
            x, y = images_of(self.data, "test", counts["build"] + counts["test"])
            build, test = slice(0, counts["build"]), slice(counts["build"], None)
            train = images_of(self.data, "train", None if self.size is GPU else counts["train"])
            self.images = {"train": train, "build": (x[build], y[build]), "test": (x[test], y[test])}
        inputs, labels = self.images["test"]
        np.savez(self.folder / gpu_networks.TEST, inputs=inputs, labels=labels)

    @property
    def kind(self) -> str:
        return self.device.type

    # Stages ----------------------------------------------------------------------------------------------------------

    def streams(self, seconds: float) -> Facts:
        """Two networks in turn, and beside each other, in threads and streams of their own."""
        rows = self.images["test"][0][:8]
        models = [
            TorchModule(name, gpu_networks.empty(name).eval().to(self.device), self.device) for name in self.size.sizes
        ]
        alone = [np.asarray(model.predict(rows)) for model in models]
        repeats, differ = max(3, self.size.rows // 10), list[float]()
        turns = [
            repeated(model, rows, want, own_stream(self.kind), repeats, differ)
            for model, want in zip(models, alone, strict=True)
        ]
        in_turn_s, beside_s = list[float](), list[float]()
        for _ in range(3):
            in_turn_s.append(seconds_of(lambda: [turn() for turn in turns]))
            threads = [threading.Thread(target=turn) for turn in turns]
            beside_s.append(seconds_of(lambda threads=threads: both(threads)))
        return {
            "answers_differ_by_at_most": max(differ, default=0.0),
            "batches": 2 * repeats,
            "in_turn_s": float(np.median(in_turn_s)),
            "beside_s": float(np.median(beside_s)),
            "gain": float(np.median(in_turn_s) / np.median(beside_s)),
        }

    def train(self, seconds: float) -> Facts:
        """Both networks trained, each for its time; what they get right of unseen images."""
        facts: Facts = {}
        inputs, labels = self.images["test"]
        for name, share in (("large", 0.75), ("small", 0.25)):
            network = gpu_networks.empty(name).to(self.device)
            steps = trained(network, *self.images["train"], self.size.batch, share * self.size.train_s, self.device)
            save_file(
                {key: tensor.cpu().contiguous() for key, tensor in network.state_dict().items()},
                self.folder / f"{name}.safetensors",
            )
            right = right_of(network, inputs, labels, self.device)
            millions = sum(parameter.numel() for parameter in network.parameters()) / 1e6
            facts[name] = {"steps": steps, "epochs": steps * self.size.batch / len(self.images["train"][0])}
            facts[name] |= {"accuracy": right, "million_parameters": millions}
        return facts

    def cached(self, lookups: Lookups, *, compiled: bool = False) -> Callable[[float], Facts]:
        """Learned caches of the large network, built and judged on unseen images; what is explored is shared."""

        def stage(seconds: float) -> Facts:
            network = gpu_networks.load_large().to(self.device)
            began = time.perf_counter()
            built = caches.build(
                network, *self.images["build"], accuracy=self.target, lookups=lookups, out=self.folder / "explored",
                variants=self.size.variants, training=self.size.training, processes=self.size.processes,
                most_s=0.5 * seconds, compiled=compiled,
            )  # fmt: skip
            took_s = time.perf_counter() - began
            if lookups == "inline" and not compiled:
                built.save(self.folder / "caches")
            inputs, labels = self.images["test"]
            found = caches.evaluate(built.model, inputs, labels, timed_rows=self.size.rows)
            return {
                "built_in_s": took_s,
                "lookups": built.manifest.lookups,
                "not_compiled": built.not_compiled,
                "compiled_in_s": None if built.manifest.compiled is None else built.manifest.compiled.took_s,
                "trained": len({(entry.layer, entry.variant) for entry in built.manifest.variants}),
                "left_out": built.left_out,
                "chosen": [f"{entry.variant} after {entry.block}" for entry in built.manifest.chosen],
                "reckoned_gain": built.manifest.base_s / built.manifest.latency_s,
                "measured": built.manifest.measured,
                "p99_over_base": found.latency_s.p99 / found.base_latency_s.p99,
                "evaluation": found,
                "asked_for": self.target,
            }

        return stage

    def cascade(self, seconds: float) -> Facts:
        """Profiled, planned, served by a server of its own, and compared with the simulation of the same requests."""
        models = ["small", "large"] + ["cached"] * (self.folder / "caches" / "manifest.json").is_file()
        project = PROJECT.format(kind=self.kind, repeats=self.size.repeats)
        project += "".join(f'\n[models.{name}]\nload = "networks.py:load_{name}"\nsoftmax = true\n' for name in models)
        project = project.replace('load_cached"\nsoftmax = true', 'load_cached"')
        (self.folder / "gearshift.toml").write_text(project)
        began = time.perf_counter()
        profile = gearshift.profile(self.folder, out=self.folder / "profile")
        profiled_s = time.perf_counter() - began
        curve = profile.curve("large", device_kind=self.kind)
        alone_qps = curve.batch_sizes[-1] / float(curve.median_s[-1])
        peak_qps = min(self.size.peak_qps, 1.2 * alone_qps)
        trace = bursty(peak_qps / 4, peak_qps, self.size.trace_s, seed=0)
        plan_s = seconds_of(
            lambda: gearshift.plan(
                self.folder / "profile", trace, latency_s=LATENCY_S, budget_s=0.2 * seconds,
                out=self.folder / "plan.json",
            )
        )  # fmt: skip
        validation = gearshift.validate(self.folder / "plan.json", trace, binary=True)
        return {
            "models": models,
            "profiled_in_s": profiled_s,
            "planned_in_s": plan_s,
            "run_times_s": {
                name: dict(zip(map(str, one.batch_sizes), map(float, one.median_s), strict=True))
                for name in models
                for one in [profile.curve(name, device_kind=self.kind)]
            },
            "peak_qps": peak_qps,
            "validation": validation.as_json(),
        }


def repeated(
    model: TorchModule, rows: np.ndarray, want: np.ndarray, stream: Any, repeats: int, differ: list[float]
) -> Callable[[], None]:
    """What runs a model's batches in a stream of its own, and notes by how much answers differ from those wanted."""

    def turn() -> None:
        with stream:
            answers = (np.asarray(model.predict(rows)) for _ in range(repeats))
            differ.extend(float(np.abs(answer - want).max()) for answer in answers)

    return turn


def both(threads: Sequence[threading.Thread]) -> None:
    """Have all run to their ends."""
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def seconds_of(work: Callable[[], object]) -> float:
    """How long it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def right_of(network: nn.Module, images: np.ndarray, labels: np.ndarray, device: torch.device) -> float:
    """The share of images that a network gets right."""
    with torch.inference_mode():
        parts = [network(part.to(device)).argmax(dim=1).cpu() for part in torch.from_numpy(images).split(100)]
    return float((torch.cat(parts).numpy() == labels).mean())


def trained(
    network: nn.Module, images: np.ndarray, labels: np.ndarray, batch: int, seconds: float, device: torch.device
) -> int:
    """Train by SGD for so long, with a rate that falls to nothing in that time; how many steps it took."""
    x, y = torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device)
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    began, steps, passed = time.monotonic(), 0, 0.0
    network.train()
    while passed < 1.0:
        for rows in torch.randperm(len(x), generator=generator).split(batch):
            for group in optimizer.param_groups:
                group["lr"] = 0.05 * min(1.0, (steps + 1) / 50) * (1 - passed) + 1e-5
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                scores = network(x[rows])
            functional.cross_entropy(scores.float(), y[rows]).backward()
            optimizer.step()
            steps += 1
            if device.type == "cuda" and steps % 20 == 0:
                torch.cuda.synchronize()  # else all steps are started at once, and time says nothing
            passed = (time.monotonic() - began) / seconds
            if passed >= 1.0:
                break
    network.eval()
    return steps


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="in small, on processors: only to see that it works")
    parser.add_argument("--data", type=Path, help="a folder with CIFAR-10 [default: images made up here]")
    parser.add_argument("--out", type=Path, default=Path("on-a-gpu.json"))
    parser.add_argument("--work", type=Path, help="keep networks, caches, profile and plan there [default: nothing]")
    parser.add_argument("--budget-s", type=float, default=BUDGET_S)
    options = parser.parse_args(given)
    if not options.cpu and not torch.cuda.is_available():
        print("PyTorch sees no CUDA device; --cpu tries the script without one", file=sys.stderr)
        return 2
    device, size = (torch.device("cpu"), SMALL) if options.cpu else (torch.device("cuda:0"), GPU)
    if options.cpu:
        torch.set_num_threads(1)  # more would only get in each other's way in networks this small
    about = {
        "machine": describe(),
        "processors": len(os.sched_getaffinity(0)),
        "device": "cpu" if options.cpu else torch.cuda.get_device_name(device),
        "pytorch": str(torch.__version__),
        "gearshift": gearshift.__version__,
    }
    print(about, flush=True)
    stages = Stages(options.out, options.budget_s, about)
    with tempfile.TemporaryDirectory() as temporary:
        folder = temporary if options.work is None else options.work
        Path(folder).mkdir(parents=True, exist_ok=True)
        target = 0.8 if options.cpu else TARGET
        run_all(stages, OnADevice(device, size, Path(folder).resolve(), target, options.data))
    print(f"\nwrote {options.out}; {stages.left_s:.0f} s of {options.budget_s:.0f} are left")
    return 0 if all(facts["status"] == "done" for facts in stages.facts.values()) else 1


def run_all(stages: Stages, on: OnADevice) -> None:
    """All stages, the cheap ones first."""
    size, whole_s = on.size, on.size.caches_s
    stages.run("images", lambda seconds: on.prepare() or {}, least_s=2, most_s=60)
    stages.run("streams", on.streams, least_s=2, most_s=40, needs=["images"])
    stages.run("training", on.train, least_s=size.train_s, most_s=2 * size.train_s + 20, needs=["images"])
    stages.run("caches in line", on.cached("inline"), least_s=whole_s / 4, most_s=whole_s, needs=["training"])
    stages.run("cascade", on.cascade, least_s=size.cascade_s / 3, most_s=size.cascade_s, needs=["training"])
    beside, needs = on.cached("beside"), ["caches in line"]
    stages.run("caches beside", beside, least_s=whole_s / 8, most_s=whole_s / 2, needs=needs)
    compiled = on.cached("inline", compiled=True)
    stages.run("caches on compiled segments", compiled, least_s=size.compile_s / 2, most_s=size.compile_s, needs=needs)


if __name__ == "__main__":
    raise SystemExit(main())
