from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gearshift.caches.network.collect import as_answers, base_scores, collect_hidden, hidden_path
from gearshift.caches.network.tracing import chain_of
from gearshift.errors import InvalidInput

SPOILT = -7


class Keeps(nn.Module):
    """Drops the rows, columns or values that a function chooses."""

    def __init__(self, keep: object) -> None:
        super().__init__()
        self.keep = keep

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert callable(self.keep)
        kept: torch.Tensor = self.keep(x)
        return kept


def layers(keep: object) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), Keeps(keep), nn.AdaptiveAvgPool1d(4), nn.Linear(4, 3))


def rows(n: int = 150) -> np.ndarray:
    return np.random.default_rng(0).random((n, 4), dtype=np.float32)


def test_hidden_outputs_are_those_of_the_blocks_in_the_order_of_the_rows(tmp_path: Path) -> None:
    module = layers(lambda x: x * 2)
    chain = chain_of(module, ["1"])
    collect_hidden(chain, rows(), [0], tmp_path)
    answers = as_answers(base_scores(chain, rows(), lambda share: None))
    with torch.inference_mode():
        assert np.allclose(np.load(hidden_path(tmp_path, 0)), module[:2](torch.from_numpy(rows())).numpy(), atol=1e-6)
        assert np.allclose(answers.probabilities, torch.softmax(module(torch.from_numpy(rows())), 1).numpy(), atol=1e-6)
    assert [path.name for path in tmp_path.iterdir()] == ["hidden-000.npy"]


@pytest.mark.parametrize(
    ("keep", "why"),
    [
        (lambda x: torch.where(x == x.new_tensor(float(SPOILT)), torch.nan, x), "puts out NaN or infinity for row 100"),
        (lambda x: x[:, : 4 - int((x == SPOILT).any())], r"puts out rows of shape \(3,\) for some inputs and \(4,\)"),
        (lambda x: x[x[:, 0] != SPOILT], r"puts out \(63, 4\) for 64 rows"),
    ],
)
def test_unusable_hidden_outputs_are_refused_naming_the_block(tmp_path: Path, keep: object, why: str) -> None:
    module = nn.Sequential(nn.Identity(), Keeps(keep), nn.AdaptiveAvgPool1d(4), nn.Linear(4, 3))
    inputs = rows()
    inputs[100, 0] = SPOILT
    chain = chain_of(module, ["1"])
    with pytest.raises(InvalidInput, match=f"block '1': {why}"):
        collect_hidden(chain, inputs, [0], tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidInput, match=f"block '1': {why}"):
        base_scores(chain, inputs, lambda share: None)


def test_no_layer_runs_behind_those_that_are_collected(tmp_path: Path) -> None:
    ran: list[int] = []
    module = layers(lambda x: x * 2)
    module[3].register_forward_hook(lambda *_: ran.append(3))
    module[0].register_forward_hook(lambda *_: ran.append(0))
    collect_hidden(chain_of(module, ["1"]), rows(10), [0], tmp_path)
    assert set(ran) == {0}


def test_scores_that_are_distributions_are_kept_and_others_made_so() -> None:
    scores = np.array([[0.25, 0.75], [0.5, 0.5]], dtype=np.float32)
    assert not as_answers(scores).logits
    assert as_answers(scores).probabilities.tolist() == scores.tolist()
    assert as_answers(scores * 2).logits
    assert as_answers(scores * 2).probabilities.sum(axis=1) == pytest.approx([1, 1])
    assert as_answers(scores).best.tolist() == [1, 0]
