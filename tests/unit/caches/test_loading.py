from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from gearshift import caches
from gearshift.caches.loading import load_caches
from gearshift.caches.network.learned_cache import LearnedCache, make_predictor
from gearshift.caches.store.manifest import MANIFEST, read_manifest
from gearshift.caches.store.weights import save_caches
from gearshift.errors import InvalidInput
from tests.unit.caches.digit_networks import built, digits, example, network


def saved(folder: Path) -> dict[str, Any]:
    """The manifest, with one untrained cache that is chosen, as written."""
    torch.manual_seed(0)
    cache = LearnedCache(make_predictor("FC(16)", (4, 8, 8), 10), 10)
    entry = next(
        entry for entry in built().manifest.variants if entry.block == "blocks.1" and entry.variant == "FC(16)"
    )
    chosen = msgspec.structs.replace(entry, chosen=True, spare=False)
    manifest = msgspec.structs.replace(built().manifest, variants=(chosen,))
    save_caches(folder, manifest, {1: cache})
    written: dict[str, Any] = msgspec.json.decode((folder / MANIFEST).read_bytes())
    return written


def test_caches_come_back_as_they_were_saved(tmp_path: Path) -> None:
    images = digits()[0][1300:1400]
    manifest = built().save(tmp_path)
    again = caches.load(tmp_path, network())
    assert read_manifest(tmp_path) == manifest
    one, other = built().model.predict(images), again.predict(images)
    assert one["exit_segment"].tolist() == other["exit_segment"].tolist()
    assert np.allclose(one["scores"], other["scores"])


def test_the_users_own_predictors_are_needed_to_load_what_they_were_chosen_in(tmp_path: Path) -> None:
    written = saved(tmp_path)
    written["variants"][0]["variant"] = "mine"
    (tmp_path / MANIFEST).write_bytes(msgspec.json.encode(written))
    with pytest.raises(InvalidInput, match="variant 'mine' is unknown"):
        load_caches(tmp_path, network())
    own = {"mine": lambda shape, classes: make_predictor("FC(16)", shape, classes)}
    assert list(load_caches(tmp_path, network(), own=own).caches) == [1]


@pytest.mark.parametrize(("timed_on", "cuda", "told"), [("cpu", True, 1), ("cpu", False, 0), ("cuda", True, 0)])
def test_caches_that_were_timed_on_a_processor_and_run_on_cuda_are_told_of(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    timed_on: str,
    cuda: bool,
    told: int,
) -> None:
    written = saved(tmp_path)
    assert written["device"] == "cpu"
    (tmp_path / MANIFEST).write_bytes(msgspec.json.encode(written | {"device": timed_on}))
    model = load_caches(tmp_path, network())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(model, "move", lambda device: None)
    model.setup()
    assert sum("build them with --device cuda" in message for message in caplog.messages) == told


def test_saving_again_leaves_one_version(tmp_path: Path) -> None:
    saved(tmp_path)
    built().save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    load_caches(tmp_path, network())


def test_caches_of_other_weights_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    torch.manual_seed(1)
    other = example().Network(blocks=6, width=4)
    with pytest.raises(InvalidInput, match=r"belong to other weights than this Network has; load the weights"):
        load_caches(tmp_path, other)


def test_a_file_that_is_not_the_manifests_is_refused(tmp_path: Path) -> None:
    file = tmp_path / saved(tmp_path)["file"]
    load_caches(tmp_path, network())
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(InvalidInput, match=r"caches-.*\.safetensors: is not what its manifest says"):
        load_caches(tmp_path, network())


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("file", "../elsewhere.safetensors", "names the file '../elsewhere.safetensors'"),
        ("blocks", ["blocks.1", "blocks.0", "head"], "other blocks than these learned caches were built for"),
        ("schema_version", 1, "schema_version is 1, needs 2"),
        ("classes", 0, "Expected `int` >= 1"),
    ],
)
def test_a_manifest_that_was_changed_is_refused(tmp_path: Path, field: str, value: object, why: str) -> None:
    written = saved(tmp_path)
    (tmp_path / MANIFEST).write_bytes(msgspec.json.encode(written | {field: value}))
    with pytest.raises(InvalidInput, match=why):
        load_caches(tmp_path, network())


def test_a_cache_of_another_size_than_the_manifest_says_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    written = saved(tmp_path)
    written["variants"][0] |= {"variant": "FC(65536)", "shape": [1 << 20, 1, 1]}
    (tmp_path / MANIFEST).write_bytes(msgspec.json.encode(written))
    with pytest.raises(InvalidInput, match="is not what its manifest says"):
        load_caches(tmp_path, network())


def test_a_folder_without_a_manifest_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such file; make it with `gearshift caches build`"):
        load_caches(tmp_path, network())
