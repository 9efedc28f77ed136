from collections.abc import Callable

import pytest
import torch
from torch import nn

from gearshift.caches.network.chain import Chain, chain_of, weights_sha256

GENERATOR = torch.Generator().manual_seed(0)


class Layer(nn.Module):
    """A convolution and its norm, of one, two or three dimensions."""

    def __init__(self, convolution: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.convolution, self.norm = convolution, norm

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.convolution(hidden)))


class Twice(Layer):
    """What the convolution answers is needed beside the norm."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        convolved = self.convolution(hidden)
        return convolved + self.norm(convolved)


def norm(kind: type[nn.Module] = nn.BatchNorm2d, **how: bool) -> nn.Module:
    """One whose averages, weights and biases are not what a new one has."""
    made = kind(4, **how)
    for tensor in made.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(4, generator=GENERATOR) + 0.5)
    return made


def chain(layer: nn.Module, blocks: list[str] | None = None) -> Chain:
    return chain_of(nn.Sequential(layer, nn.Flatten(), nn.Linear(4 * 25, 8), nn.ReLU(), nn.Linear(8, 3)), blocks)


def same(made: Chain, given: torch.Tensor) -> bool:
    with torch.inference_mode():
        scores = made.module(given)
        *_, last = made.hidden(given)
        found = last, made.body(given), made.span(0, len(made) - 1)(given)
        return all(torch.allclose(one, scores, rtol=1e-5) for one in found)


@pytest.mark.parametrize(
    ("convolution", "kind", "shape"),
    [(nn.Conv1d, nn.BatchNorm1d, (25,)), (nn.Conv2d, nn.BatchNorm2d, (5, 5)), (nn.Conv3d, nn.BatchNorm3d, (5, 5, 1))],
)
@pytest.mark.parametrize("bias", [True, False])
def test_a_norm_behind_a_convolution_is_folded_into_it(
    convolution: Callable[..., nn.Module], kind: type[nn.Module], shape: tuple[int, ...], bias: bool
) -> None:
    layer = Layer(convolution(2, 4, 1, bias=bias), norm(kind))
    before = weights_sha256(layer)
    made = chain(layer)
    assert not any(isinstance(part, kind) for segment in made.segments for part in segment.modules())
    assert same(made, torch.rand((3, 2, *shape), generator=GENERATOR))
    assert weights_sha256(layer) == before


def watched(part: nn.Module) -> nn.Module:
    part.register_forward_hook(lambda module, given, answer: 2 * answer)
    return part


@pytest.mark.parametrize(
    "layer",
    [
        Twice(nn.Conv2d(2, 4, 1), norm()),
        Layer(nn.Conv2d(2, 4, 1), norm(track_running_stats=False)),
        Layer(nn.Identity(), norm()),
        Layer(nn.Conv2d(2, 4, 1), watched(norm())),
        Layer(watched(nn.Conv2d(2, 4, 1)), norm()),
        Layer(torch.nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 4, 1)), norm()),
    ],
)
def test_what_may_do_more_than_a_norm_behind_a_convolution_stays(layer: Layer) -> None:
    made, channels = chain(layer), 4 if isinstance(layer.convolution, nn.Identity) else 2
    assert layer.norm in set(made.segments[0].modules())
    assert same(made, torch.rand((3, channels, 5, 5), generator=GENERATOR))


def test_what_is_less_precise_stays() -> None:
    layer = Layer(nn.Conv2d(2, 4, 1), norm()).to(torch.bfloat16)
    assert layer.norm in set(chain(layer).segments[0].modules())


def test_a_convolution_that_is_named_as_a_block_stays() -> None:
    made = chain(Layer(nn.Conv2d(2, 4, 1), norm()), ["0.convolution", "2"])
    assert made.names == ("0.convolution", "2", "head")
    assert any(isinstance(part, nn.BatchNorm2d) for part in made.segments[1].modules())
    assert same(made, torch.rand((3, 2, 5, 5), generator=GENERATOR))
