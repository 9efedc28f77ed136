from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from gearshift import caches
from gearshift.caches.network.chain import chain_of
from gearshift.caches.network.learned_cache import LearnedCache, make_predictor
from gearshift.caches.running.cached_model import CachedModel
from gearshift.caches.store.manifest import MANIFEST, read_manifest
from gearshift.caches.store.weights import load_caches, save_caches
from gearshift.errors import InvalidInput, ModelFailed
from gearshift.models.certainty import top_two_difference
from gearshift.models.user_model import UserModel
from tests.unit.caches.digit_networks import built, digits, example, network


class HitsWhere(torch.nn.Module):
    """A cache that hits where the first value of the hidden output is at least a bound, and always says class 1."""

    def __init__(self, bound: float) -> None:
        super().__init__()
        self.bound, self.seen = bound, list[int]()

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.seen.append(len(hidden))
        return torch.tensor([[0.0, 1.0]]).repeat(len(hidden), 1), hidden[:, 0] >= self.bound


def counting() -> tuple[CachedModel, dict[str, list[int]]]:
    """Three segments that add 1 each; caches hit from 5 and from 3 on."""
    ran: dict[str, list[int]] = {}

    class Adds(torch.nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            ran.setdefault(self.name, []).append(len(x))
            return x + 1

    module = torch.nn.Sequential(Adds("a"), Adds("b"), Adds("c"))
    chain = chain_of(module, ["0", "1", "2"])
    ran.clear()
    model = CachedModel(chain, {0: HitsWhere(5.0), 1: HitsWhere(3.0)}, logits=False)  # type: ignore[dict-item]
    return model, ran


def rows(*first: float) -> np.ndarray:
    return np.array([[value, 0.0] for value in first], dtype=np.float32)


def test_rows_leave_where_they_hit_and_the_rest_goes_on_compacted() -> None:
    model, ran = counting()
    said = model.predict(rows(0, 5, 1, 9, 2))
    assert said["exit_segment"].tolist() == [2, 0, 1, 0, 1]
    assert said["scores"].argmax(axis=1).tolist() == [0, 1, 1, 1, 1]
    assert said["scores"][0].tolist() == [3, 3]
    assert ran == {"a": [5], "b": [3], "c": [1]}


def test_a_batch_that_hits_as_a_whole_ends_there() -> None:
    model, ran = counting()
    assert model.predict(rows(7, 8))["exit_segment"].tolist() == [0, 0]
    assert ran == {"a": [2]}


def test_rows_are_given_exit_by_exit() -> None:
    model, _ = counting()
    left = [(numbers.tolist(), answer["exit_segment"].tolist()) for numbers, answer in model.exits(rows(0, 5, 1, 9, 2))]
    assert left == [([1, 3], [0, 0]), ([2, 4], [1, 1]), ([0], [2])]


@pytest.mark.parametrize("first", [(0, 5, 1), (0, 1), (0,), (7, 8)])
def test_whoever_takes_exits_one_by_one_is_left_as_he_was(first: tuple[float, ...]) -> None:
    for _ in counting()[0].exits(rows(*first)):
        assert not torch.is_inference_mode_enabled()


def test_rows_of_a_batch_leave_in_any_order_and_keep_their_own_answers() -> None:
    images = digits()[0][1300:1360]
    model = built().model
    alone = [model.predict(image[None]) for image in images]
    for size in (2, 3, 7, 8, 9, 30):
        said = model.predict(images[:size])
        assert said["exit_segment"].tolist() == [int(one["exit_segment"][0]) for one in alone[:size]]
        assert np.allclose(said["scores"], np.concatenate([one["scores"] for one in alone[:size]]), atol=1e-4)


def test_a_batch_that_goes_through_answers_as_the_base_model_and_times_each_segment() -> None:
    model, ran = counting()
    answer, seconds = model.through(rows(0, 5, 9))
    assert answer["scores"].tolist() == [[3, 3], [8, 3], [12, 3]]
    assert answer["exit_segment"].tolist() == [2, 2, 2]
    assert ran == {"a": [3], "b": [3], "c": [3]}
    assert len(seconds) == model.segments == 3
    assert min(seconds) > 0


def test_what_lies_between_two_lookups_runs_as_one_and_its_segments_share_the_time() -> None:
    model, ran = counting()
    model.use({1: model.caches[1]})
    assert model.predict(rows(0, 5))["exit_segment"].tolist() == [2, 1]
    assert ran == {"a": [2], "b": [2], "c": [1]}
    _, seconds = model.through(rows(0, 5))
    assert len(seconds) == 3
    assert seconds[0] == seconds[1] != seconds[2]


def test_buffers_of_the_module_itself_move_with_it() -> None:
    class Shifted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            self.register_buffer("shift", torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x) + self.shift)

    model = CachedModel(chain_of(Shifted()), {}, logits=True)
    there = torch.device("meta")
    model.move(there)
    end, run = model._steps.after(-1)
    assert end == model.segments - 1
    assert run(torch.zeros(1, 4, device=there)).device == there


def test_a_batch_answers_as_its_rows_do_alone() -> None:
    images = digits()[0][1300:1340]
    model = built().model
    together = model.predict(images)
    assert len(set(together["exit_segment"].tolist())) > 1
    alone = [model.predict(image[None]) for image in images]
    assert together["exit_segment"].tolist() == [int(one["exit_segment"][0]) for one in alone]
    assert np.allclose(together["scores"], np.concatenate([one["scores"] for one in alone]), atol=1e-4)


def test_rows_that_miss_everywhere_answer_as_the_base_model() -> None:
    images = digits()[0][1300:1310]
    model = CachedModel(built().model.chain, {}, logits=True)
    said = UserModel("m", model, top_two_difference).run({"images": images})
    with torch.inference_mode():
        assert np.allclose(said.outputs["scores"], torch.softmax(network()(torch.from_numpy(images)), 1), atol=1e-5)
    assert said.exit_segment is not None
    assert said.exit_segment.tolist() == [2] * 10
    assert sorted(said.outputs) == ["label", "scores"]


def test_classes_and_decode_of_the_module_keep_their_meaning() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    module.classes_ = np.array(["no", "yes"])
    module.decode = lambda inputs: np.stack([inputs["a"], inputs["b"]], axis=1)
    model = UserModel("m", CachedModel(chain_of(module), {}, logits=True), top_two_difference)
    ones = np.ones(3, dtype=np.float32)
    assert set(model.run({"a": ones, "b": ones}).outputs["label"].tolist()) <= {"no", "yes"}


def test_several_inputs_are_refused() -> None:
    with pytest.raises(ModelFailed, match="takes one input; give the module a method `decode`"):
        counting()[0].predict({"a": rows(1), "b": rows(1)})


# On disk


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


def test_a_row_alone_leaves_where_it_hits_and_modules_are_found_without_a_search() -> None:
    model, ran = counting()
    said = [model.predict(rows(value)) for value in (0, 5, 1)]
    assert [one["exit_segment"].tolist() for one in said] == [[2], [0], [1]]
    assert ran == {"a": [1, 1, 1], "b": [1, 1], "c": [1]}
    for segment in model.chain.segments:
        called = [node for node in segment.graph.nodes if node.op == "call_module"]  # type: ignore[union-attr]
        assert all(segment.__dict__[str(node.target)] in set(segment.modules()) for node in called)
