"""A chain of segments that a PyTorch module is cut into, and the steps through it."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, fx, nn

from gearshift.errors import InvalidInput

SUPPORTED = "supported are modules of one input whose blocks run one after another, each once, and answer class scores"
HEAD = "head"
"""The segment after the last block."""
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


Step = Callable[[Tensor], Tensor]
"""From one hidden output to a later one: a `forward`, called directly as there are no hooks."""


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Segments in the order in which they run, with the names of the blocks at their ends.

    They are parts of `body`, which shares the module's weights, except for convolutions into which
    batch norms are folded. `cuts` are the nodes of its graph where segments begin, and the one
    where the last ends.
    """

    module: nn.Module
    names: tuple[str, ...]
    segments: tuple[nn.Module, ...]
    body: fx.GraphModule
    cuts: tuple[fx.Node, ...]

    def __len__(self) -> int:
        return len(self.segments)

    def hidden(self, inputs: Tensor) -> Iterator[Tensor]:
        """Yield each segment's output; raises `InvalidInput` with the name of a failing block."""
        for name, segment in zip(self.names, self.segments, strict=True):
            try:
                inputs = segment(inputs)
            except Exception as error:
                raise InvalidInput(
                    f"raised {type(error).__name__}: {one_line(error)}",
                    where=f"block {name!r}",
                    remedy="give inputs of the shape and type that the module takes",
                ) from error
            yield inputs

    def span(self, first: int, last: int) -> nn.Module:
        """Join segments `first` to `last` into one module, which saves hand-overs."""
        if first == last:
            return self.segments[first]
        return segment_of(self.body, self.cuts[first], self.cuts[last + 1])

    def move(self, device: torch.device) -> None:
        """Move module and segments to a device; existing spans become invalid."""
        for part in (self.module, self.body, *self.segments):
            part.to(device)

    @property
    def device(self) -> torch.device:
        return next((parameter.device for parameter in self.module.parameters()), torch.device("cpu"))


class ForSome(Protocol):
    def or_else(self, plain: Step) -> Step: ...


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Segments between caches, joined into one step each, since no row can leave between them.

    Caches are after `layers`; `spans` by first segment, with their ends.

    Spans begin with the first segment and after caches; making one builds a graph, which takes
    time. `compiled` spans are keyed by their first and last segment.
    """

    chain: Chain
    layers: frozenset[int] = frozenset()
    spans: Mapping[int, tuple[int, Step]] = field(default_factory=dict)
    compiled: Mapping[tuple[int, int], ForSome] = field(default_factory=dict)

    def ends(self, layers: Iterable[int]) -> dict[int, int]:
        """Return the last segment of each span between these caches, by its first."""
        looked, last = frozenset(layers), len(self.chain) - 1
        return {
            first: min(end for end in (*looked, last) if end >= first)
            for first in (0, *(layer + 1 for layer in looked))
        }

    def with_caches(self, layers: Iterable[int]) -> "Steps":
        spans = {}
        for first, end in self.ends(layers := frozenset(layers)).items():
            known = self.spans.get(first)
            if known is None or known[0] != end:
                step, quick = self.chain.span(first, end).forward, self.compiled.get((first, end))
                known = end, step if quick is None else quick.or_else(step)
            spans[first] = known
        return replace(self, layers=layers, spans=spans)

    def after(self, segment: int, *, pending: bool = False) -> tuple[int, Step]:
        """Return the last segment of the next step, and the step: a span up to the next cache.

        While lookups are `pending`, it is a single segment, since rows may leave at its end.
        """
        first = segment + 1
        return (first, self.chain.segments[first].forward) if pending or first not in self.spans else self.spans[first]


def check_chain(chain: Chain, rows: Tensor) -> int:
    """Run `rows` (n, ...) and return the number of classes.

    Raises `InvalidInput` unless the chain answers as its module does, with class scores, and each
    row independently of the others.
    """
    with (
        torch.inference_mode(),
        torch.backends.cudnn.flags(allow_tf32=False),
    ):  # TF32 rounds folded convolutions differently
        *_, last = chain.hidden(rows)
        whole = chain.module(rows)
        *_, alone = chain.hidden(rows[:1])
    if not isinstance(whole, Tensor) or whole.ndim != 2 or whole.shape[1] < 2 or not whole.is_floating_point():
        told = f"shape {tuple(whole.shape)}" if isinstance(whole, Tensor) else f"type {type(whole).__name__}"
        raise not_a_chain(chain.module, f"answers {told} for {len(rows)} rows, no class scores (n, classes)")
    if not torch.allclose(whole, last, **CLOSE, equal_nan=True):
        raise not_a_chain(chain.module, "answers otherwise when its blocks run one by one")
    if last.shape[0] != len(rows) or not torch.allclose(last[:1], alone, **CLOSE, equal_nan=True):
        raise not_a_chain(chain.module, "answers a row otherwise when other rows are beside it")
    return int(whole.shape[1])


def weights_sha256(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def finish(device: torch.device) -> None:
    """Wait until all that was begun on a device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def segment_of(body: fx.GraphModule, source: fx.Node, end: fx.Node) -> nn.Module:
    graph, nodes = fx.Graph(), list(body.graph.nodes)
    copies: dict[fx.Node, Any] = {source: graph.placeholder("hidden")}
    needed = {end}
    for node in reversed(nodes):
        if node in needed and node is not source:
            needed.update(node.all_input_nodes)
    for node in nodes:
        if node in needed and node is not source:
            default = node.op == "placeholder"
            copies[node] = node.args[0] if default else graph.node_copy(node, copies.__getitem__)
    graph.output(copies[end])
    segment = fx.GraphModule(body, graph).eval()
    find_modules_at_once(segment)
    return segment


def find_modules_at_once(part: fx.GraphModule) -> None:
    """Find modules as attributes: a lookup by path takes a microsecond or more per call."""
    for node in part.graph.nodes:
        if node.op == "call_module":
            module, node.target = part.get_submodule(str(node.target)), f"run_{node.name}"
            part.__dict__[node.target] = module
    part.recompile()


def not_a_chain(module: nn.Module, why: str) -> InvalidInput:
    return InvalidInput(f"{type(module).__name__} {why}", where="learned caches", remedy=SUPPORTED)


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
