"""Learned caches from the command line, of a network that nobody trained and on samples of noise."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from gearshift import caches
from gearshift.caches.building.evaluation import Evaluation
from gearshift.caches.store.manifest import Measured, read_manifest
from gearshift.cli.offline.caches import load_module
from gearshift.cli.views.rows.caches import margin, no_gain
from gearshift.reporting.caches_page import exits_chart, hits_chart
from gearshift.reporting.drawing.charts import Blocks, Line
from gearshift.result import LatencySummary
from tests.unit.cli.little import run

MODEL = """
import torch

def load():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 32), *(torch.nn.Linear(32, 32) for _ in range(3)), torch.nn.Linear(32, 3)]
    return torch.nn.Sequential(*layers)

def load_heavy():
    torch.manual_seed(0)
    heavy = [torch.nn.Sequential(torch.nn.Linear(4, 50_000), torch.nn.Linear(50_000, 4)) for _ in range(3)]
    return torch.nn.Sequential(*heavy, torch.nn.Linear(4, 3))

def load_other():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 3))

def load_number():
    return 3

def load_turning():
    class Turns(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) if x.sum() > 0 else x

    class Both(torch.nn.Sequential):
        pass

    Turns.__module__ = Both.__module__ = "mine"
    return Both(torch.nn.Linear(4, 4), Turns(4, 4), torch.nn.Linear(4, 3))

def load_tied():
    twice = torch.nn.Linear(4, 4)
    return torch.nn.Sequential(twice, torch.nn.Linear(4, 4), twice, torch.nn.Linear(4, 3))

def load_score():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))

class Cuts(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x)[:, : 4 - int((x > 100).any())]

def load_cutting():
    return torch.nn.Sequential(Cuts(4, 4), torch.nn.AdaptiveAvgPool1d(4), torch.nn.Linear(4, 3))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("caches")
    (folder / "model.py").write_text(MODEL)
    x = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    np.savez(folder / "data.npz", inputs=x)
    done = run(
        *("caches", "build", f"{folder / 'model.py'}:load", "--data", folder / "data.npz", "--out", folder / "caches"),
        *("--variants", "FC(16)", "--epochs", 3, "--jobs", 1, "--accuracy", 0.9, "--json", folder / "built.json"),
    )
    assert done.exit_code == 0, done.output
    return folder


def test_build_tells_what_was_chosen_and_what_it_comes_to(built: Path) -> None:
    manifest = json.loads((built / "built.json").read_text())
    assert manifest["blocks"] == ["0", "1", "2", "3", "head"]
    assert {entry["variant"] for entry in manifest["variants"]} == {"FC(16)"}
    assert manifest["accuracy"] >= 0.9
    assert (built / "caches" / manifest["file"]).is_file()


@pytest.mark.long
def test_build_runs_what_it_has_chosen_and_says_what_it_comes_to(built: Path, tmp_path: Path) -> None:
    done = run(
        *("caches", "build", f"{built / 'model.py'}:load_heavy", "--data", built / "data.npz", "--out", tmp_path / "c"),
        *("--variants", "FC(16)", "--blocks", "0,1,2", "--epochs", 20, "--jobs", 1, "--accuracy", 0.8),
    )
    assert "samples that judge, one by one and in turn" in done.output
    measured = json.loads((tmp_path / "c" / "manifest.json").read_text())["measured"]
    assert min(measured[name] for name in ("rows", "module_s", "folded_s", "cached_s")) > 0


def test_a_module_is_put_on_the_device_that_is_named_and_left_alone_otherwise(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    moved: list[str] = []
    monkeypatch.setattr(torch.nn.Module, "to", lambda module, device: moved.append(device) or module)
    for device in (None, "cpu"):
        assert isinstance(load_module(f"{built / 'model.py'}:load", 1, device), torch.nn.Module)
    assert moved == ["cpu"]


def test_few_samples_that_judge_are_said_to_cost_agreement(built: Path) -> None:
    manifest = read_manifest(built / "caches")
    first, *others = (msgspec.structs.replace(entry, chosen=False, spare=False) for entry in manifest.variants)
    chosen = msgspec.structs.replace(first, chosen=True), *others
    few, many = (
        msgspec.structs.replace(manifest, variants=chosen, target=0.95, samples=samples) for samples in (200, 2000)
    )
    assert margin(few).startswith("97.5 % of 200 samples that judge must be answered alike to make 95.0 % likely")
    assert margin(many) == ""


@pytest.mark.parametrize(
    ("module_s", "folded_s", "cached_s", "told"),
    [
        (0.005, 0.004, 0.002, ""),
        (0.005, 0.004, 0.0045, "all of the gain is folding's"),
        (0.005, 0.004, 0.006, "no faster here, so serve the model without them, or ask for less --accuracy"),
    ],
)
def test_caches_that_bring_nothing_as_measured_are_said_to(
    module_s: float, folded_s: float, cached_s: float, told: str
) -> None:
    said = no_gain(Measured(rows=1, module_s=module_s, folded_s=folded_s, cached_s=cached_s))
    assert said.startswith(told)
    assert bool(said) == bool(told)


def test_show_has_every_variant_and_a_chart(built: Path) -> None:
    done = run("caches", "show", built / "caches", "--all", "--chart", built / "chart.html")
    assert done.exit_code == 0, done.output
    for told in ("FC(16)", "relaxation", "greedy by hit rate", "exact", "joint", "run to the end"):
        assert told in done.output
    explored = json.loads((built / "built.json").read_text())["variants"]
    assert done.output.count("FC(16)") == len(explored) > 1
    page = (built / "chart.html").read_text()
    assert "Variants: how much they hit" in page
    assert "with it" in page or "without it" in page
    last = done.output[done.output.index("Compositions") :].split("by price")[1].splitlines()[0]
    assert "yes" in last


def test_charts_have_a_dot_for_every_variant_a_ring_for_each_chosen_and_all_samples(built: Path) -> None:
    manifest = read_manifest(built / "caches")
    few = tuple(
        msgspec.structs.replace(one, chosen=k in (0, 3), spare=False, layer=k)
        for k, one in enumerate(manifest.variants)
    )
    manifest = msgspec.structs.replace(manifest, variants=few[:4])
    (panel,) = hits_chart(manifest).panels
    *kinds, chosen = (mark for mark in panel.marks if isinstance(mark, Line))
    dots = {(x, y) for mark in kinds for x, y in zip(mark.x, mark.y, strict=True)}
    assert sum(len(mark.x) for mark in kinds) == len(manifest.variants) == 4
    assert (chosen.name, len(chosen.x), chosen.ringed) == ("chosen", 2, True)
    assert set(zip(chosen.x, chosen.y, strict=True)) <= dots
    (panel,) = exits_chart(manifest).panels
    (bars,) = panel.marks
    assert isinstance(bars, Blocks)
    assert [name for _, name in panel.x.ticks] == list(manifest.blocks)
    assert sum(bars.y1) == pytest.approx(100, abs=0.1)


def test_evaluate_says_where_samples_are_those_of_the_build(built: Path, tmp_path: Path) -> None:
    with np.load(built / "data.npz") as arrays:
        known = arrays["inputs"]
    new = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    for inputs, told in ((np.r_[known[:20], new], "built from 20 of these samples"), (new, None)):
        np.savez(tmp_path / "some.npz", inputs=inputs)
        evaluated = run(
            *("caches", "evaluate", f"{built / 'model.py'}:load", "--caches", built / "caches"),
            *("--data", tmp_path / "some.npz", "--timed-rows", 1),
        )
        assert evaluated.exit_code == 0, evaluated.output
        assert ("of these samples" in evaluated.output) == (told is not None)
        assert told is None or told in evaluated.output


def test_few_samples_are_said_to_promise_little(built: Path, tmp_path: Path) -> None:
    manifest = json.loads((built / "caches" / "manifest.json").read_text())
    changed = {"target": 0.97, "accuracy": 0.97, "samples": 140, "choices": []}
    for number, entry in enumerate(manifest["variants"]):
        entry |= {"chosen": number == 0, "spare": False}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | changed))
    told = " ".join(run("caches", "show", tmp_path).output.split())
    assert (
        "on new samples it may be as low as 92.7 %: 140 samples give no better estimate; build from 7400 samples"
        in told
    )
    shown = {"confidence": 0.95, "lower_bound": 0.97}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | changed | shown))
    assert "on new samples" not in run("caches", "show", tmp_path).output
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | changed | {"samples": 1480}))
    assert "on new samples" not in run("caches", "show", tmp_path).output


@pytest.mark.parametrize(
    ("samples", "few"),
    [
        (75, "from 76 on, and that where none is answered otherwise; build from 380 samples or more, or ask for less"),
        (76, "where fewer than 1 of them are answered otherwise; give more samples, or ask for less"),
        (140, "where fewer than 2 of them are answered otherwise"),
        (20_000, ""),
    ],
)
def test_where_no_cache_was_chosen_for_want_of_samples_it_is_said(
    built: Path, tmp_path: Path, samples: int, few: str
) -> None:
    manifest = json.loads((built / "caches" / "manifest.json").read_text())
    for entry in manifest["variants"]:
        entry |= {"chosen": False, "spare": False}
    changed = {"target": 0.97, "accuracy": 1.0, "samples": samples, "choices": []}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | changed))
    told = " ".join(run("caches", "show", tmp_path).output.split())
    assert "no learned cache makes this model faster within the target" in told
    assert ("samples that judge are few: 97.0 % of new ones is likely" in told) == bool(few)
    assert few in told


def test_evaluate_compares_on_other_samples(built: Path) -> None:
    model = f"{built / 'model.py'}:load"
    options = ("--data", built / "data.npz", "--caches", built / "caches", "--timed-rows", 5)
    found = json.loads(run("caches", "evaluate", model, *options, "--json", "-").stdout)
    assert found["samples"] == 300
    assert found["agreement"] > 0.7
    assert found["gain_over_folded"] == found["folded_latency_s"]["mean"] / found["latency_s"]["mean"]
    shown = " ".join(run("caches", "evaluate", model, *options).output.split())
    assert all(name in shown for name in ("base model", "norms folded", "with learned caches", "gain", "over folded"))


def evaluation(agreement: float, interval: tuple[float, float]) -> Evaluation:
    seconds = LatencySummary(mean=1.0, p50=1.0, p95=1.0, p99=1.0)
    return Evaluation(
        samples=397, agreement=agreement, agreement_interval=interval, accuracy=None, base_accuracy=None, exits={},
        timed=1, base_latency_s=seconds, folded_latency_s=seconds, latency_s=seconds, gain=1.0, gain_over_folded=1.0,
    )  # fmt: skip


def test_evaluate_says_where_agreement_is_below_what_was_asked_for(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--data", built / "data.npz", "--caches", built / "caches")
    for agreement, told in ((0.89, True), (0.9, False)):
        found = evaluation(agreement, (0.85, 0.92))
        monkeypatch.setattr(caches, "evaluate", lambda *model, found=found, **options: found)
        done = run("caches", "evaluate", f"{built / 'model.py'}:load", *options)
        assert ("agreement is below the 90.00% asked for, which may be luck" in done.output) == told


@pytest.mark.parametrize(("accuracy", "told"), [(0.0, True), (0.1, False), (None, False)])
def test_evaluate_warns_where_the_model_is_never_right(
    built: Path, monkeypatch: pytest.MonkeyPatch, accuracy: float | None, told: bool
) -> None:
    found = msgspec.structs.replace(evaluation(1.0, (0.9, 1.0)), base_accuracy=accuracy)
    monkeypatch.setattr(caches, "evaluate", lambda *model, **options: found)
    done = run(
        "caches", "evaluate", f"{built / 'model.py'}:load", "--data", built / "data.npz", "--caches", built / "caches"
    )
    assert ("warning: the model is right on no sample" in done.output) == told


@pytest.mark.parametrize(
    ("agreement", "interval", "told"),
    [
        (
            0.965,
            (0.942, 0.979),
            "below the 97.00% asked for, which may be luck: 96.50%, on new samples 94.20% to 97.90%",
        ),
        (0.9, (0.86, 0.93), "below the 97.00% asked for, which is more than luck: 90.00%"),
        (0.97, (0.95, 0.98), ""),
    ],
)
def test_a_shortfall_is_told_with_its_interval(agreement: float, interval: tuple[float, float], told: str) -> None:
    shortfall = evaluation(agreement, interval).shortfall(0.97)
    assert told in shortfall
    assert bool(shortfall) == bool(told)


@pytest.mark.long
def test_caches_for_lookups_beside_the_model_are_chosen_from_what_was_explored_and_run_so(
    built: Path, tmp_path: Path
) -> None:
    shutil.copytree(built / "caches", tmp_path / "caches")
    model, data = f"{built / 'model.py'}:load", ("--data", built / "data.npz")
    options = ("--variants", "FC(16)", "--epochs", 3, "--jobs", 1, "--accuracy", 0.9, "--lookups", "beside")
    done = run("caches", "build", model, *data, "--out", tmp_path / "caches", *options)
    assert done.exit_code == 0, done.output
    spare = len(os.sched_getaffinity(0)) > 1
    manifest = json.loads((tmp_path / "caches" / "manifest.json").read_text())
    assert manifest["lookups"] == ("beside" if spare else "inline")
    assert {kind.stem for kind in (tmp_path / "caches" / "exploration").glob("0*")} == {
        kind.stem for kind in (built / "caches" / "exploration").glob("0*")
    }
    for how in ((), ("--lookups", "inline")):
        done = run("caches", "evaluate", model, *data, "--caches", tmp_path / "caches", "--timed-rows", 2, *how)
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("build", "model.py:load", "--data", "nothing.npz"), "nothing.npz: no such file; write it with np.savez"),
        (("build", "model.py:load", "--data", "model.py"), "model.py: holds no arrays"),
        (("build", "model.py:load", "--data", "other.npz"), "other.npz: has no array 'inputs'"),
        (("build", "model.py:load", "--data", "pickled.npz"), "pickled.npz: holds no arrays"),
        (("build", "model.py:load", "--data", "few.npz"), "99 samples are too few; give at least 100"),
        (("build", "model.py:load_number", "--data", "data.npz"), "answered int, no PyTorch module"),
        (("build", "model.py", "--data", "data.npz"), "MODEL: is 'model.py'; write it as file.py:function"),
        (("build", "model.py:missing", "--data", "data.npz"), "has no function 'missing'"),
        (("build", "model.py:load_turning", "--data", "data.npz"), "Both has control flow that depends on its data"),
        (("build", "model.py:load_tied", "--data", "data.npz"), "Sequential runs block '0' 2 times"),
        (("build", "model.py:load_score", "--data", "data.npz"), "answers shape (8, 1) for 8 rows, no class scores"),
        (
            ("build", "model.py:load_cutting", "--data", "large.npz", "--blocks", "0"),
            "block '0': puts out rows of shape (3,) for some inputs and (4,) for others; give inputs of one size",
        ),
        (("build", "model.py:load", "--data", "nan.npz"), "block '0': puts out NaN or infinity for row 70; mend the"),
        (("build", "model.py:load", "--data", "wide.npz"), "block '0': raised RuntimeError: mat1 and mat2 shapes"),
        (("build", "model.py:load", "--data", "double.npz"), "give inputs of the shape and type that the module takes"),
        (("build", "model.py:load", "--data", "single.npz"), "a single value is no input of a module"),
        (("build", "model.py:load", "--data", "data.npz", "--memory-mib", "-1"), "memory_budget_bytes is"),
        (
            ("build", "model.py:load", "--data", "data.npz", "--most-delay", "-1"),
            "most_delay is -1; give a share, 0 or",
        ),
        (
            ("build", "model.py:load", "--data", "data.npz", "--accuracy", "1"),
            "accuracy is 1; no samples show that a learned cache is never mistaken; give a share above 0 and below 1",
        ),
        (
            ("build", "model.py:load", "--data", "data.npz", "--confidence", "1"),
            "confidence is 1; give a share above 0 and below 1",
        ),
        (("build", "model.py:load", "--data", "data.npz", "--confidence", "0.95"), "give at least 1000"),
        (
            ("build", "model.py:load", "--data", "data.npz", "--disk-gib", "nan"),
            "--disk-gib is nan; give a finite",
        ),
        (
            ("build", "model.py:load", "--data", "data.npz", "--disk-gib", "inf"),
            "--disk-gib is inf; give a finite",
        ),
        (("build", "model.py:load", "--data", "data.npz", "--disk-gib", "0"), "--disk-gib is 0; give a finite"),
        (("build", "model.py:load", "--data", "data.npz", "--blocks", ""), "is given without a block to look after"),
        (("build", "model.py:load", "--data", "data.npz", "--blocks", "4"), "ends with 4, and nothing is left to save"),
        (("build", "model.py:load", "--data", "data.npz", "--device", "cuda"), "PyTorch finds no CUDA device"),
        (("show", "nowhere"), "no such file; make it with `gearshift caches build`"),
        (("evaluate", "model.py:load_other", "--data", "data.npz"), "belong to other weights"),
        (
            ("evaluate", "model.py:load", "--data", "wide.npz"),
            "give inputs of the shape and type that the module takes",
        ),
    ],
)
def test_bad_input_is_one_sentence(
    built: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], why: str
) -> None:
    monkeypatch.chdir(built)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    np.savez("other.npz", x=np.zeros(3))
    np.savez("few.npz", inputs=np.zeros((99, 4), dtype=np.float32))
    np.savez("pickled.npz", inputs=np.array([{}], dtype=object))
    spoilt = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    np.savez("double.npz", inputs=spoilt.astype(np.float64))
    np.savez("wide.npz", inputs=np.zeros((200, 5), dtype=np.float32))
    np.savez("single.npz", inputs=np.float32(1))
    spoilt[70] = 1000
    np.savez("large.npz", inputs=spoilt)
    spoilt[70] = np.nan
    np.savez("nan.npz", inputs=spoilt)
    done = run("caches", *arguments)
    assert done.exit_code == 2, done.output
    assert why in done.stderr
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.output


@pytest.mark.parametrize("verb", ["build", "show"])
def test_without_torch_a_sentence_says_so_or_what_needs_none_works(built: Path, tmp_path: Path, verb: str) -> None:
    shutil.copytree(built / "caches", tmp_path / "caches", ignore=shutil.ignore_patterns("exploration"))
    manifest = json.loads((tmp_path / "caches" / "manifest.json").read_bytes())
    manifest["variants"] = [{**variant, "chosen": False} for variant in manifest["variants"]]
    (tmp_path / "caches" / "manifest.json").write_text(json.dumps(manifest))
    np.savez(tmp_path / "data.npz", inputs=np.zeros((50, 4), dtype=np.float32))
    (tmp_path / "model.py").write_text("def load():\n    return 1\n")
    commands = {
        "build": ["build", "model.py:load", "--data", "data.npz", "--accuracy", "0.9", "--out", "new"],
        "show": ["show", "caches"],
    }
    code = (
        "import sys; sys.modules['torch'] = None; from gearshift.cli.main import main; "
        f"sys.argv = ['gearshift', 'caches', *{commands[verb]!r}]; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "a bug in gearshift" in done.stderr) == ({"build": 2, "show": 0}[verb], False), done
    assert "gearshift[torch]" in done.stderr if verb == "build" else "no learned cache makes" in done.stdout


def test_versions_are_shown_and_rolled_back(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "caches"
    shutil.copytree(built / "caches", folder, ignore=shutil.ignore_patterns("exploration"))
    second = folder / "versions" / "000001"
    shutil.copytree(built / "caches", second, ignore=shutil.ignore_patterns("exploration"))
    manifest = json.loads((second / "manifest.json").read_bytes())
    adapted = {"number": 1, "before": 0, "at_s": 0.0, "reason": "hit rate", "trained": 50}
    manifest["adapted"] = {**adapted, "accuracy_before": 0.9, "latency_s_before": 0.001}
    (second / "manifest.json").write_text(json.dumps(manifest))
    done = run("caches", "rollback", folder, "--to", 1)
    assert done.exit_code == 0, done.output
    assert "hit rate" in done.output
    assert json.loads(run("caches", "versions", folder, "--json", "-").stdout)["current"] == 1
    shown = " ".join(run("caches", "show", folder).output.split())
    assert "version 1 (retrained " in shown
    assert "from version 0, because of hit rate), in use" in shown
    assert "recent samples that were held back" in shown
    assert json.loads(run("caches", "show", folder, "--json", "-").stdout)["adapted"]["number"] == 1
    manifest["adapted"] |= {"reason": "class mix", "trained": 0, "class_mix": [0.5, 0.3, 0.2]}
    (second / "manifest.json").write_text(json.dumps(manifest))
    told = " ".join(run("caches", "show", folder).output.split())
    assert "version 1 (set for other classes " in told
    assert "samples, counted as often as their classes come" in told
    shown = run("caches", "show", folder, "--version", 0, "--json", "-")
    assert json.loads(shown.stdout)["adapted"] is None
    assert "version 0 (as built), version 1 is in use" in run("caches", "show", folder, "--version", 0).output
    wrong = run("caches", "show", folder, "--version", 7)
    assert wrong.exit_code == 2
    assert "there is no version 7; use one of 0, 1" in wrong.output
    assert run("caches", "rollback", folder).exit_code == 0
    again = run("caches", "rollback", folder)
    assert again.exit_code == 2
    assert "the caches in use are those that were built; name a version" in again.output
