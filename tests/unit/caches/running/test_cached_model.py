import numpy as np
import pytest
import torch

from gearshift.caches.network.tracing import chain_of
from gearshift.caches.running.cached_model import CachedModel
from gearshift.errors import ModelFailed
from gearshift.models.certainty import top_two_difference
from gearshift.models.user_model import UserModel
from tests.unit.caches.digit_networks import built, digits, network


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


def test_a_row_alone_leaves_where_it_hits_and_modules_are_found_without_a_search() -> None:
    model, ran = counting()
    said = [model.predict(rows(value)) for value in (0, 5, 1)]
    assert [one["exit_segment"].tolist() for one in said] == [[2], [0], [1]]
    assert ran == {"a": [1, 1, 1], "b": [1, 1], "c": [1]}
    for segment in model.chain.segments:
        called = [node for node in segment.graph.nodes if node.op == "call_module"]  # type: ignore[union-attr]
        assert all(segment.__dict__[str(node.target)] in set(segment.modules()) for node in called)
