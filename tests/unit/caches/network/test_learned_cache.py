import pytest
import torch

from gearshift.caches.network.learned_cache import LearnedCache, default_variants, make_predictor
from gearshift.errors import InvalidInput


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


PARAMETERS = 11_000_000


def parameters(variant: str, shape: tuple[int, ...]) -> int:
    return sum(parameter.numel() for parameter in make_predictor(variant, shape, 10).parameters())


def test_the_papers_sizes_are_the_defaults_for_its_models() -> None:
    names = default_variants((64, 32, 32), PARAMETERS)
    assert names == ("FC(1024)", "FC(512)", "Pool(8192,1024)", "Pool(4096,1024)", "Conv(3,1)", "Conv(5,2)")


def test_small_models_get_small_predictors() -> None:
    assert default_variants((16, 8, 8), PARAMETERS // 64)[:3] == ("FC(128)", "FC(64)", "Pool(1024,128)")
    assert default_variants((64,), 1000) == ("FC(16)",)
    assert default_variants((20, 64), PARAMETERS) == ("Token(1024)", "Token(512)")


def test_memory_is_that_of_the_papers_table_4() -> None:
    with torch.device("meta"):
        assert parameters("FC(1024)", (64, 32, 32)) * 4 / 1e6 == pytest.approx(268, abs=1)
        assert parameters("FC(1024)", (128, 16, 16)) * 4 / 1e6 == pytest.approx(134, abs=1)
        assert parameters("Pool(8192)", (128, 16, 16)) * 4 / 1e6 == pytest.approx(33.6, abs=0.5)


@pytest.mark.parametrize(
    ("variant", "shape"),
    [
        ("FC(8)", (4, 6, 6)),
        ("FC(8)", (12,)),
        ("Pool(16,8)", (4, 6, 6)),
        ("Pool(9999)", (4, 2, 2)),
        ("Conv(3,1)", (4, 6, 6)),
        ("Conv(5,2)", (4, 3, 3)),
        ("Token(8)", (5, 12)),
    ],
)
def test_every_predictor_answers_logits_and_a_cache_distributions_and_hits(
    variant: str, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    cache = LearnedCache(make_predictor(variant, shape, 3), 3).eval()
    with torch.inference_mode():
        probabilities, hits = cache(torch.rand((7, *shape)))
    assert probabilities.shape == (7, 3)
    assert probabilities.sum(dim=1).numpy() == pytest.approx([1] * 7, abs=1e-5)
    assert hits.shape == (7,)
    assert hits.dtype == torch.bool


def test_the_users_own_predictors_are_made_by_name() -> None:
    own = {"mine": lambda shape, classes: torch.nn.Linear(shape[0], classes)}
    assert isinstance(make_predictor("mine", (4,), 3, own), torch.nn.Linear)


@pytest.mark.parametrize(
    ("variant", "shape", "why"),
    [
        ("Tree(3)", (4,), r"variant 'Tree\(3\)' is unknown; use one of FC\(h\)"),
        ("FC(0)", (4,), "sizes beyond 1 to 65536"),
        ("FC(999999)", (4,), "sizes beyond 1 to 65536"),
        ("Conv(3,1)", (4,), r"cannot look at hidden outputs of shape \[4\]; use FC"),
    ],
)
def test_variants_that_make_no_sense_are_refused(variant: str, shape: tuple[int, ...], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        make_predictor(variant, shape, 3)
