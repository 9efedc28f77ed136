import numpy as np
import pytest
import torch

from gearshift.caches.network.learned_cache import LearnedCache, make_predictor
from gearshift.caches.running.row_lookup import FEW_POOLED_ROWS, FEW_ROWS, Compiled, Whole, lookup_of
from gearshift.errors import ModelFailed

IMAGE, TOKENS, FEATURES = (6, 8, 8), (5, 6), (12,)


def cache_of(variant: str, shape: tuple[int, ...]) -> LearnedCache:
    torch.manual_seed(0)
    cache = LearnedCache(make_predictor(variant, shape, 4), 4).eval().requires_grad_(False)
    cache.scale.fill_(0.3)
    cache.prior.copy_(torch.tensor([0.7, -0.4, 0.0, 1.1]))
    return cache


@pytest.mark.parametrize(
    ("variant", "shape"),
    [
        ("FC(16)", IMAGE), ("FC(16)", FEATURES), ("Pool(32,16)", IMAGE), ("Conv(3,1)", IMAGE), ("Conv(5,2)", IMAGE),
        ("Token(16)", TOKENS),
    ],
)  # fmt: skip
def test_a_row_is_looked_up_as_it_would_be_in_a_batch(variant: str, shape: tuple[int, ...]) -> None:
    cache = cache_of(variant, shape)
    hidden = 4 * torch.randn((40, *shape))
    with torch.inference_mode():
        sure = cache.judged(cache(hidden)[0])
        look = lookup_of(cache).row
        cache.threshold.copy_((sure.sort().values[19] + sure.sort().values[20]) / 2)  # seen by what was made before
        probabilities, hits = cache(hidden)
        alone = [look(row[None]) for row in hidden]
    assert [one is not None for one in alone] == hits.tolist()
    found = np.concatenate([one for one in alone if one is not None])
    assert found.shape == (20, 4)
    assert found.dtype == np.float32
    assert np.allclose(found, probabilities[hits], atol=1e-6)


@pytest.mark.parametrize("variant", ["FC(16)", "Pool(32,16)", "Conv(3,1)"])
def test_weights_are_looked_up_where_they_are_and_not_in_a_copy(variant: str) -> None:
    cache = cache_of(variant, IMAGE)
    cache.threshold.fill_(-np.inf)
    row, look = torch.randn((1, *IMAGE)), lookup_of(cache).row
    before = look(row)
    for weight in cache.predictor.parameters():
        if weight.ndim > 1:
            weight.mul_(2)
    after = look(row)
    assert before is not None
    assert after is not None
    assert not np.allclose(before, after, atol=1e-3)
    assert np.allclose(after, cache(row)[0], atol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_no_number_is_a_miss_and_counted(value: float) -> None:
    cache = cache_of("FC(16)", FEATURES)
    cache.threshold.fill_(-np.inf)
    look = lookup_of(cache).row
    assert look(torch.ones((1, *FEATURES))) is not None
    assert look(torch.full((1, *FEATURES), value)) is None
    assert cache.not_finite == 1


def test_a_users_own_predictor_runs_as_it_is() -> None:
    class Own(torch.nn.Module):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return hidden[:, :4].square()

    torch.manual_seed(0)
    cache = LearnedCache(Own(), 4).eval().requires_grad_(False)
    cache.threshold.fill_(-np.inf)
    cache.prior[2] = 3.0
    row = torch.randn((1, *FEATURES)).double()
    found = lookup_of(cache).row(row)
    assert found is not None
    logits = row[:, :4].square().float() + torch.tensor([0.0, 0.0, 3.0, 0.0])
    assert np.allclose(found, torch.softmax(logits, dim=1), atol=1e-6)


def test_a_cache_that_judges_in_its_own_way_is_asked_as_a_whole() -> None:
    class Sure(LearnedCache):
        def judged(self, probabilities: torch.Tensor) -> torch.Tensor:
            return probabilities.amax(dim=1)

    cache = Sure(make_predictor("FC(16)", FEATURES, 4), 4).eval().requires_grad_(False)
    row = torch.randn((1, *FEATURES))
    cache.threshold.fill_(0.2)
    assert lookup_of(cache).row(row) is not None
    cache.threshold.fill_(1.1)
    assert lookup_of(cache).row(row) is None


@pytest.mark.parametrize("rows", [2, FEW_ROWS, FEW_ROWS + 1, FEW_POOLED_ROWS, FEW_POOLED_ROWS + 1])
@pytest.mark.parametrize("variant", ["FC(16)", "Pool(32,16)", "Conv(3,1)"])
def test_some_rows_are_looked_up_as_the_cache_does(variant: str, rows: int) -> None:
    cache = cache_of(variant, IMAGE)
    hidden = 4 * torch.randn((rows, *IMAGE))
    with torch.inference_mode():
        cache.threshold.copy_(cache.judged(cache(hidden)[0]).mean())
        probabilities, hits = cache(hidden)
        for look in (lookup_of(cache), Whole(cache)):
            found, which = look.rows(hidden)
            assert which.tolist() == hits.tolist()
            assert np.allclose(found, probabilities[hits], atol=1e-6)
    assert 0 < len(found) < rows


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("size", [(8, 8), (7, 5), (3, 3), (1, 9)])
def test_pixels_are_averaged_as_pytorch_does_whatever_the_size_of_the_image(
    size: tuple[int, int], memory_format: torch.memory_format
) -> None:
    cache = cache_of("Pool(54,16)", (6, 8, 8))  # 3 x 3 cells
    cache.threshold.fill_(-np.inf)
    look = lookup_of(cache)
    with torch.inference_mode():
        for _ in range(2):  # and again, another shape between
            row = torch.randn((1, 6, *size)).to(memory_format=memory_format)
            found = look.row(row)
            assert found is not None
            assert np.allclose(found, cache(row)[0], atol=1e-6)
            look.row(torch.randn((1, *IMAGE)))


@pytest.mark.parametrize(
    ("variant", "shape"), [("FC(16)", (6, 8, 7)), ("Pool(32,16)", (5, 8, 8)), ("Pool(32,16)", (384,))]
)
def test_a_hidden_output_of_another_shape_is_refused_and_not_read_beyond_its_end(
    variant: str, shape: tuple[int, ...]
) -> None:
    look = lookup_of(cache_of(variant, IMAGE))
    assert isinstance(look, Compiled)
    with pytest.raises(ModelFailed, match="not made for hidden outputs of shape"):
        look.row(torch.ones((1, *shape)))
    with pytest.raises(ModelFailed, match="not made for hidden outputs of shape"):
        look.rows(torch.ones((2, *shape)))


def test_rows_that_are_no_numbers_are_misses_among_others_and_counted() -> None:
    cache = cache_of("FC(16)", FEATURES)
    cache.threshold.fill_(-np.inf)
    hidden = torch.ones((3, *FEATURES))
    hidden[1, 4] = np.nan
    found, hits = lookup_of(cache).rows(hidden)
    assert hits.tolist() == [True, False, True]
    assert found.shape == (2, 4)
    assert cache.not_finite == 1
