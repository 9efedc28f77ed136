"""Profiles and traces made from the real data that `--data` names."""

import csv
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.workload import Trace

DEVICE_KIND = "v100"
PAIRINGS = {
    "yelp": {"100": "tiny", "4": "small", "3": "medium", "0": "base"},
    "imdb": {"100": "tiny", "4": "small", "3": "medium", "0": "base"},
    "command": {"101": "tiny", "5": "small", "0": "medium", "2": "base"},
}
"""FrugalML's model of a data set, and the BERT whose run times it is given."""
LLAMAS = {"1b": "llama_03b", "3b": "llama_07b", "8b": "llama_13b", "70b": "llama_70b"}
"""The model whose answers were judged, and the one whose run times it is given."""
LARGEST_BATCH = 100


def halves(samples: int, seed: int) -> NDArray[np.int8]:
    """Part A or B for each sample, half each at random."""
    part = np.zeros(samples, dtype=np.int8)
    part[np.random.default_rng(seed).permutation(samples)[: samples // 2]] = 1
    return part


def powers_of_two(largest: int) -> tuple[int, ...]:
    """1, 2, 4 and so on, up to `largest`."""
    return tuple(1 << i for i in range(largest.bit_length()))


def bert_curves(data: Path, sizes: Sequence[int] = powers_of_two(LARGEST_BATCH)) -> dict[str, RunTimeCurve]:
    """Run times of BERT tiny to large, by default at powers of two."""
    measured = json.loads((data / "profiles" / "bert_v100.json").read_text())
    curves = {}
    for name, entry in measured.items():
        seconds = tuple(float(entry["runtime"][str(size)]) for size in sizes)
        curves[name] = RunTimeCurve(
            model=name,
            device_kind=DEVICE_KIND,
            batch_sizes=sizes,
            median_s=seconds,
            p95_s=seconds,
            memory_bytes=int(np.sum(entry["memory"])),
        )
    return curves


def frugalml(data: Path, name: str, *, seed: int = 0, sizes: Sequence[int] = powers_of_two(LARGEST_BATCH)) -> Profile:
    """Predictions of a FrugalML data set with run times of BERT; models are named after the latter."""
    curves = bert_curves(data, sizes)
    pairing = PAIRINGS[name]
    with np.load(data / "predictions" / f"frugalml_{name}.npz") as archive:
        quality = np.array([archive[f"correct_{id_}"] for id_ in pairing], dtype=np.float64)
        certainty = np.array([archive[f"confidence_{id_}"] for id_ in pairing], dtype=np.float64)
        prediction = np.array([archive[f"predicted_{id_}"].astype(str) for id_ in pairing])
        label = archive["true_label"].astype(str)
    return Profile(
        operator=name,
        curves=tuple(curves[model] for model in pairing.values()),
        predictions=PredictionRecords(
            models=tuple(pairing.values()),
            quality=quality,
            certainty=certainty,
            part=halves(len(label), seed),
            label=label,
            prediction=prediction,
        ),
    )


def mt_bench(data: Path, *, models: Sequence[str] = tuple(LLAMAS), seed: int = 0) -> Profile:
    """Judged turns of Llamas with Llama-2's run times, one request at a time; the largest spans two devices."""
    folder = data / "predictions" / "mt_bench"
    scores: dict[str, list[float]] = {}
    for line in (folder / "scores.txt").read_text().splitlines():
        if line.strip():
            scores[line.split(".txt")[0].rsplit("_", 1)[1]] = json.loads(line[line.index("[") :])
    sure = {m: json.loads((folder / f"certainty_{m}.json").read_text()) for m in models}
    turns = [i for i in range(len(scores["1b"])) if min(scores[m][i] for m in LLAMAS) >= 0]
    times = json.loads((data / "profiles" / "llama_v100.json").read_text())
    curves = []
    for model in models:
        timed = LLAMAS[model]
        parts_s = [s for s in times[timed]["runtime"]["default"] if s > 0]
        curves.append(
            RunTimeCurve(
                model=model,
                device_kind=DEVICE_KIND,
                tensor_parallel=len(parts_s),
                batch_sizes=(1,),
                median_s=(sum(parts_s),),
                p95_s=(sum(parts_s),),
                memory_bytes=sum(times[timed]["memory"]),
            )
        )
    return Profile(
        operator="chat",
        curves=tuple(curves),
        predictions=PredictionRecords(
            models=tuple(models),
            quality=np.array([[scores[m][i] / 10 for i in turns] for m in models]),
            certainty=np.array([[sure[m][str(i)] for i in turns] for m in models]),
            part=halves(len(turns), seed),
        ),
    )


def sponge_latency(data: Path) -> tuple[list[int], list[int], list[float]]:
    """Batch sizes, cores and seconds of Sponge's 30 measurements of its human detector."""
    with open(data / "profiles" / "sponge_resnet_latency.csv", newline="") as file:
        cells = [
            (int(row["batch_size"]), int(column.removeprefix("cores_")), float(row[column]))
            for row in csv.DictReader(file)
            for column in row
            if column != "batch_size"
        ]
    batch_sizes, cores, seconds = zip(*cells, strict=True)
    return list(batch_sizes), list(cores), list(seconds)


def infadapter_capacity(data: Path) -> dict[str, tuple[list[int], list[float]]]:
    """Cores and requests per second at saturation of each of InfAdapter's ResNets, at batch size 1."""
    measured: dict[str, dict[int, float]] = {}
    with open(data / "profiles" / "infadapter_capacity.csv", newline="") as file:
        for row in csv.DictReader(file):
            measured.setdefault(f"resnet{row['ARCH']}", {})[int(row["CPU"])] = float(row["saturation_tp"])
    return {model: (sorted(by), [by[c] for c in sorted(by)]) for model, by in measured.items()}


def azure_conversations(data: Path, *, start_s: float, seconds: float) -> Trace:
    """Arrivals of the Azure trace of conversations within a window."""
    with open(data / "traces" / "azure_llm_conv.csv", newline="") as file:
        stamps = [row["TIMESTAMP"] for row in csv.DictReader(file)]
    # Seven decimals, one more than datetime reads.
    times = [datetime.fromisoformat(s[:26]).timestamp() for s in stamps]
    times_s = np.sort(np.array(times) - min(times))
    inside = times_s[(times_s >= start_s) & (times_s < start_s + seconds)] - start_s
    return Trace(arrivals_ns=np.rint(inside * 1e9).astype(np.int64), duration_s=seconds)
