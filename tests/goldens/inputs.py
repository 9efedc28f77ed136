"""The inputs of all goldens: records, profiles and traces, made of fixed seeds by the command line alone.

A world is a folder for each kind of plan. Nothing is imported from the package, so that what is recorded before a
module moves can be recorded after it, too.
"""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

Gearshift = Callable[..., object]
"""Runs a command line in a folder, and fails where it does."""

SIZES = (1, 2, 4, 8, 16)
CORES = (1, 2, 4)
PROMPTS, STRIPS, PARTS = 60, 120, 3
DIVIDED = 0.85
"""The share of a batch's time that is divided among cores."""

NODES = {
    "split": {"operator": "split"},
    "read": {"operator": "read", "fan_out": {"per_row": "split.parts", "most": 4}},
    "join": {"operator": "join", "fan_in": True},
}
EDGES = [{"from": "split", "to": "read"}, {"from": "read", "to": "join"}]


def make_worlds(folder: Path, gearshift: Gearshift) -> None:
    for name, make in (("one", _one), ("several", _several), ("graph", _graph), ("language", _language)):
        (folder / name).mkdir()
        make(folder / name, gearshift)


def _one(folder: Path, gearshift: Gearshift) -> None:
    """One operator of three models; `on-cores` is measured on several core counts."""
    models = {"small": (1.0, 0.7), "middle": (3.0, 0.82), "large": (9.0, 0.94)}
    _write_records(folder / "records", models, samples=240, seed=1)
    gearshift(folder, "profile", "--from-records", "records", "--operator", "words", "--out", "profile")
    _write_records(folder / "on-cores-records", {"small": (10.0, 0.7), "large": (30.0, 0.9)}, cores=CORES, seed=2)
    gearshift(folder, "profile", "--from-records", "on-cores-records", "--operator", "words", "--out", "on-cores")
    _write_counts(folder / "trace.csv", [40, 60, 180, 240, 90, 40])
    _write_counts(folder / "short.csv", [20])


def _several(folder: Path, gearshift: Gearshift) -> None:
    for seed, (name, ms) in enumerate((("cats", 1.0), ("dogs", 2.0), ("birds", 1.0))):
        models = {f"{name}-small": (ms, 0.75), f"{name}-large": (6 * ms, 0.93)}
        _write_records(folder / f"{name}-records", models, samples=160, seed=seed)
        gearshift(folder, "profile", "--from-records", f"{name}-records", "--operator", name, "--out", name)
        _write_counts(folder / f"{name}.csv", [30, 50 + 10 * seed, 90, 40])
        _write_counts(folder / f"{name}-short.csv", [15])


def _graph(folder: Path, gearshift: Gearshift) -> None:
    """Strips are cut into three parts, which are read and joined; beside it the records of another operator."""
    operators = {
        "split": ({"cut": (0.5, 1.0)}, STRIPS),
        "read": ({"small": (1.0, 0.85), "large": (6.0, 0.97)}, STRIPS * PARTS),
        "join": ({"add": (0.3, 1.0)}, STRIPS),
    }
    for seed, (name, (models, samples)) in enumerate(operators.items()):
        _write_records(folder / f"{name}-records", models, samples=samples, seed=seed)
        out = f"profile/{name}"
        gearshift(folder, "profile", "--from-records", f"{name}-records", "--operator", name, "--out", out)
    pipeline = {"output": "join", "nodes": NODES, "edges": EDGES, "requests": STRIPS}
    file = {"schema_version": 1, "seed": 0, "operators": list(operators), "pipelines": {"strips": pipeline}}
    (folder / "profile" / "pipelines.json").write_text(json.dumps(file, indent=1) + "\n")
    rows: list[Sequence[object]] = []
    for number in range(STRIPS):
        read = [(number, "read", "", PARTS * number + part) for part in range(PARTS)]
        rows += [(number, "split", "", number), *read, (number, "join", "", number)]
    (folder / "profile" / "strips").mkdir()
    _write_csv(folder / "profile" / "strips" / "tuples.csv", ("tuple", "node", "parent", "row"), rows)
    _write_counts(folder / "trace.csv", [20, 40, 60, 30])
    _write_counts(folder / "short.csv", [10])


def _language(folder: Path, gearshift: Gearshift) -> None:
    draw = Random(4)
    hard = [draw.random() for _ in range(PROMPTS)]
    lengths = [draw.randint(10, 60) for _ in range(PROMPTS)]
    (folder / "records").mkdir()
    for number, (model, accuracy) in enumerate({"small": 0.5, "middle": 0.7, "large": 0.92}.items()):
        lines = []
        for prompt in range(PROMPTS):
            right = hard[prompt] < accuracy
            logprobs = [-round(draw.random() * (0.4 if right else 2.0), 4) for _ in range(draw.randint(5, 24))]
            lines.append(
                {"id": f"p{prompt}", "score": int(right), "logprobs": logprobs, "prompt_tokens": lengths[prompt]}
            )
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (folder / "records" / f"{model}.jsonl").write_text(text)
        engine = json.dumps(_engine(model, (0.004, 0.01, 0.03)[number], number))
        (folder / "records" / f"{model}.engine.json").write_text(engine)
    gearshift(folder, "profile", "--from-records", "records", "--operator", "chat", "--out", "profile")
    _write_counts(folder / "trace.csv", [2, 4, 20, 25, 3, 2])
    _write_counts(folder / "short.csv", [6])
    tokens = [(round(0.2 * i, 1), draw.randint(10, 40), draw.randint(5, 20)) for i in range(8)]
    _write_csv(folder / "tokens.csv", ("arrival_s", "prompt_tokens", "output_tokens"), [*tokens, (1.7, 900, 20)])


def _engine(model: str, step_s: float, number: int) -> Mapping[str, object]:
    return {
        "model": model,
        "device_kind": "gpu",
        "prefill": {"tokens": [1, 256], "step_s": [step_s, 2 * step_s]},
        "decode": {"tokens": [1, 16, 64], "step_s": [step_s, 1.1 * step_s, 1.6 * step_s]},
        "kv_blocks": 512,
        "largest_batched_tokens": 256,
        "largest_running": 32,
        "weights_bytes": 1_000_000 * (1 + 4 * number),
        "kv_bytes_per_token": (1000, 2000, 8000)[number],
        "context_tokens": 400,
    }


def _write_records(
    folder: Path,
    models: Mapping[str, tuple[float, float]],
    *,
    samples: int = 200,
    cores: Sequence[int] = (1,),
    seed: int = 0,
) -> None:
    """Models by name: milliseconds of a batch of one, and accuracy; the surer a model, the likelier it is right."""
    draw = Random(seed)
    hard = [draw.random() for _ in range(samples)]
    answers, times = list[Sequence[object]](), list[Sequence[object]]()
    for model, (ms, accuracy) in models.items():
        for sample in range(samples):
            certainty = min(1.0, max(0.0, accuracy - hard[sample] + 0.5 + draw.gauss(0, 0.15)))
            label = "ab"[sample % 2]
            said = label if hard[sample] < accuracy else "ba"[sample % 2]
            answers.append((f"s{sample}", model, round(certainty, 4), label, said))
        for count in cores:
            share = 1 - DIVIDED + DIVIDED / count
            times += [(model, size, round(ms / 1e3 * share * (0.4 + 0.6 * size), 7), count, 1 << 28) for size in SIZES]
    folder.mkdir()
    _write_csv(folder / "predictions.csv", ("sample", "model", "certainty", "label", "prediction"), answers)
    _write_csv(folder / "runtimes.csv", ("model", "batch_size", "seconds", "cores", "memory_bytes"), times)


def _write_counts(path: Path, counts: Sequence[int]) -> None:
    _write_csv(path, ("second", "requests"), list(enumerate(counts)))


def _write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
