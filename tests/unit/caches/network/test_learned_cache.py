import torch

from gearshift.caches.network.learned_cache import LearnedCache
from gearshift.caches.network.predictors import make_predictor


def test_a_hidden_output_that_is_not_a_number_is_never_a_hit() -> None:
    torch.manual_seed(0)
    cache = LearnedCache(make_predictor("FC(16)", (4,), 3), 3)
    cache.threshold.fill_(-100.0)
    hidden = torch.ones(3, 4)
    hidden[1, 2], hidden[2, 0] = torch.nan, torch.inf
    assert cache(hidden)[1].tolist() == [True, False, False]


def test_a_selector_judges_how_probabilities_fall_and_not_of_which_classes_they_are() -> None:
    torch.manual_seed(0)
    cache = LearnedCache(make_predictor("FC(4)", (3,), 7), 7)
    probabilities = torch.softmax(torch.randn(20, 7), dim=1)
    others = torch.softmax(torch.randn(20, 7), dim=1)
    sure = cache.judged(probabilities)
    assert torch.equal(cache.judged(probabilities[:, torch.randperm(7)]), sure)
    assert not torch.equal(cache.judged(others), sure)
