from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from gearshift.caches.network.chain import Chain, check_chain, weights_sha256
from gearshift.caches.network.tracing import chain_of
from gearshift.errors import InvalidInput

GENERATOR = torch.Generator().manual_seed(0)


class Residual(nn.Module):
    """A residual block whose activation is used twice."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.relu(hidden + self.second(self.relu(self.first(hidden))))


class Stages(nn.Module):
    """Two stages of residual blocks, with functions between modules and an input that has a default."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.stage1 = nn.Sequential(Residual(4), Residual(4))
        self.stage2 = nn.Sequential(nn.Conv2d(4, 8, 3, stride=2, padding=1), Residual(8))
        self.head = nn.Linear(8, 3)

    def forward(self, images: torch.Tensor, scale: Any = None) -> torch.Tensor:
        hidden = self.stage2(self.stage1(functional.relu(self.norm(self.stem(images)))))
        pooled = functional.avg_pool2d(hidden, hidden.size()[3])
        return self.head(pooled.view(pooled.size(0), -1))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.place = nn.Embedding(20, 8), nn.Parameter(torch.randn(1, 5, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(tokens) + self.place).mean(dim=1))


class Layers(nn.Module):
    """Three layers of four features, run by a function of them and the input."""

    def __init__(self, run: Any) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.run = run

    def forward(self, x: torch.Tensor) -> Any:
        return self.run(self, x)


def images() -> torch.Tensor:
    return torch.rand((4, 1, 8, 8), generator=torch.Generator().manual_seed(0))


def test_residual_stages_are_opened_into_their_blocks() -> None:
    chain = chain_of(Stages())
    assert chain.names == ("stem", "stage1.0", "stage1.1", "stage2.0", "stage2.1", "head")
    assert check_chain(chain, images()) == 3
    with torch.inference_mode():
        assert [tuple(hidden.shape[1:]) for hidden in chain.hidden(images())][2:4] == [(4, 8, 8), (8, 4, 4)]


def test_segments_run_as_one_answer_as_one_by_one() -> None:
    chain, given = chain_of(Stages()), images()
    with torch.inference_mode():
        hidden = [given, *chain.hidden(given)]
        for first, last in ((0, 5), (0, 2), (1, 4), (3, 3), (4, 5)):
            assert torch.equal(chain.span(first, last)(hidden[first]), hidden[last + 1])
        assert torch.equal(chain.body(given), hidden[-1])


def test_segments_run_as_one_share_the_weights() -> None:
    chain, given = chain_of(Stages()), images()
    span = chain.span(0, 5)
    with torch.inference_mode():
        before = span(given)
        chain.module.head.weight.zero_()
        assert not torch.equal(span(given), before)


def test_layers_of_a_transformer_are_blocks() -> None:
    chain = chain_of(Transformer())
    assert chain.names == ("embedding", "encoder.layers.0", "encoder.layers.1", "head")
    assert check_chain(chain, torch.randint(0, 20, (3, 5), generator=torch.Generator().manual_seed(0))) == 3


def test_what_has_no_weights_belongs_to_the_block_before_it() -> None:
    sequence = nn.Sequential(
        *(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU()),
        *(nn.Linear(4, 3), nn.Softmax(1)),
    )
    chain = chain_of(sequence)
    assert chain.names == ("1", "4", "head")
    with torch.inference_mode():
        first, *_ = chain.hidden(images())
    assert bool((first >= 0).all())
    check_chain(chain, images())


def test_blocks_may_be_named_and_are_then_not_looked_into() -> None:
    def branching(self: Layers, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.a(x))

    class Turns(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if x.sum() > 0 else x

    module = Layers(branching)
    module.a = Turns(4, 4)
    with pytest.raises(InvalidInput, match="control flow that depends on its data"):
        chain_of(module)
    assert chain_of(module, ["a"]).names == ("a", "head")
    assert chain_of(Stages(), ["stage2.0", "stage1"]).names == ("stage1", "stage2.0", "head")


def test_weights_are_shared_with_the_users_module() -> None:
    module = Stages()
    chain = chain_of(module)
    before = weights_sha256(module)
    with torch.no_grad():
        module.head.bias.add_(1.0)
    *_, scores = chain.hidden(images())
    assert torch.allclose(scores, module(images()))
    assert weights_sha256(module) != before


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (lambda m, x: m.head(m.b(m.a(x))) if x.sum() > 0 else x, "has control flow that depends on its data"),
        (lambda m, x: m.head(m.b(m.b(m.a(x)))), "runs block 'b' 2 times"),
        (lambda m, x: {"logits": m.head(m.b(m.a(x)))}, "answers a .*dict, no class scores"),
        (lambda m, x: m.head(x), "has no chain of two or more blocks with weights"),
        (lambda m, x: m.head(m.b(m.a(x))).argmax(1), "answers shape .* no class scores"),
        (lambda m, x: m.head(m.b(m.a(x - x.mean()))), "answers a row otherwise when other rows are beside it"),
        (lambda m, x: m.missing(x), "cannot be traced"),
    ],
)
def test_what_cannot_be_cut_is_refused_naming_what_is_supported(run: Any, why: str) -> None:
    x = torch.rand((3, 4), generator=torch.Generator().manual_seed(0))
    with pytest.raises(InvalidInput, match=f"learned caches: Layers {why}.*; supported are modules of one input"):
        check_chain(chain_of(Layers(run)), x)


def test_a_module_of_two_inputs_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Bilinear takes 2 inputs"):
        chain_of(nn.Bilinear(2, 2, 3))


@pytest.mark.parametrize(("name", "why"), [("stage1.0.first", "is not all that later"), ("nowhere", "is not called")])
def test_a_named_block_that_ends_no_segment_is_refused(name: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=f"has a block '{name}' that {why}"):
        chain_of(Stages(), [name])


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
