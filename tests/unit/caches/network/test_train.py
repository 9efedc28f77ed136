import pickle

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor

from gearshift.caches.network import train
from gearshift.caches.network.learned_cache import LearnedCache, learned_cache
from gearshift.caches.network.train import Material, Training, TrainingDiverged, fit_cache, fit_selector, train_cache

ROWS, CLASSES = 240, 3
HIDDEN = np.random.default_rng(0).normal(size=(ROWS, 8)).astype(np.float32)
BY_FIRST, BY_LAST = ((HIDDEN[:, column] > 0).astype(np.int64) for column in (0, 7))


def trained(distillation: float, *, base: np.ndarray, labels: np.ndarray) -> LearnedCache:
    """A cache taught by a model that chooses `base` (n,), and by `labels` (n,)."""
    fit, judge, check = np.split(np.arange(ROWS), (160, 200))
    probabilities = np.full((ROWS, CLASSES), 0.05, dtype=np.float32)
    probabilities[np.arange(ROWS), base] = 0.9
    torch.manual_seed(0)
    cache = learned_cache("FC(16)", (8,), CLASSES)
    how = msgspec.structs.replace(Training(epochs=15, learning_rate=0.01), distillation=distillation)
    fit_cache(cache, Material(HIDDEN, probabilities, labels, fit, judge, check), how, 0, torch.device("cpu"))
    return cache


def chosen(cache: LearnedCache) -> np.ndarray:
    with torch.no_grad():
        return cache.predicted(torch.from_numpy(HIDDEN)).argmax(dim=1).numpy()


def test_taught_by_the_model_alone_a_predictor_learns_nothing_from_labels() -> None:
    one, other = (trained(1.0, base=BY_FIRST, labels=labels) for labels in (BY_FIRST, BY_LAST))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert (chosen(one) == BY_FIRST).mean() > 0.9


def test_taught_by_labels_alone_it_learns_nothing_from_the_model() -> None:
    one, other = (trained(0.0, base=base, labels=BY_LAST) for base in (BY_FIRST, BY_LAST))
    predictors = zip(one.predictor.parameters(), other.predictor.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in predictors)
    assert (chosen(one) == BY_LAST).mean() > 0.9


@pytest.mark.parametrize("weight", [1.0, 4.0])
def test_a_selector_that_can_tell_nothing_apart_weighs_hits_by_what_a_false_one_costs(weight: float) -> None:
    """Of 80 right and 20 wrong ones, it finds a hit as likely as 80 are among 80 and 20 times the weight."""
    torch.manual_seed(0)
    cache = learned_cache("FC(4)", (8,), CLASSES)
    alike: Tensor = torch.full((100, CLASSES), 1 / CLASSES)
    fit_selector(cache, alike, torch.arange(100) < 80, Training(false_hit_weight=weight))
    with torch.no_grad():
        sure = torch.sigmoid(cache.judged(alike))
    assert sure.numpy() == pytest.approx(80 / (80 + 20 * weight), abs=0.02)


@pytest.mark.parametrize("variant", ["Pool(32,16)", "Conv(3,1)"])
def test_hidden_outputs_that_are_pooled_once_teach_the_same(monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    generator = np.random.default_rng(1)
    hidden = generator.normal(size=(ROWS, 8, 6, 6)).astype(np.float32)
    hidden[:, 0] += BY_FIRST[:, None, None]
    probabilities = np.eye(CLASSES, dtype=np.float32)[BY_FIRST]
    material = Material(hidden, probabilities, BY_FIRST, *np.split(np.arange(ROWS), (120, 180)))

    def once(most_bytes: int) -> train.Trained:
        monkeypatch.setattr(train, "MOST_POOLED_BYTES", most_bytes)
        torch.manual_seed(0)
        cache = learned_cache(variant, hidden.shape[1:], CLASSES)
        return train_cache(cache, material, Training(epochs=3), 0, torch.device("cpu"))

    pooled, whole = once(1 << 20), once(0)
    for name, tensor in whole.cache.state_dict().items():
        assert torch.allclose(pooled.cache.state_dict()[name], tensor, atol=1e-5), name
    assert np.array_equal(pooled.right, whole.right)
    assert not pooled.cache.training


def test_that_training_diverged_can_be_told_by_the_process_that_trained() -> None:
    told = pickle.loads(pickle.dumps(TrainingDiverged(1e30)))  # noqa: S301  what we have just written
    assert isinstance(told, TrainingDiverged)
    assert str(told) == "training diverged; give a learning rate below 1e+30"
