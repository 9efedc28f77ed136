"""A PyTorch module as a chain of segments that end at blocks; code and weights stay unchanged."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.proxy import TraceError

from gearshift.caches.network.folding import fold_norms
from gearshift.errors import InvalidInput

SUPPORTED = "supported are modules of one input whose blocks run one after another, each once, and answer class scores"
CONTAINERS = (nn.Sequential, nn.ModuleList)
HEAD = "head"
"""The segment after the last block."""
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


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
                    f"raised {type(error).__name__}: {_told(error)}",
                    where=f"block {name!r}",
                    remedy="give inputs of the shape and type that the module takes",
                ) from error
            yield inputs

    def span(self, first: int, last: int) -> nn.Module:
        """Join segments `first` to `last` into one module, which saves hand-overs."""
        if first == last:
            return self.segments[first]
        return _segment(self.body, self.cuts[first], self.cuts[last + 1])

    def move(self, device: torch.device) -> None:
        """Move module and segments to a device; existing spans become invalid."""
        for part in (self.module, self.body, *self.segments):
            part.to(device)

    @property
    def device(self) -> torch.device:
        return device_of(self.module)


def chain_of(module: nn.Module, blocks: Sequence[str] | None = None) -> Chain:
    """Convert `module`, set to evaluation mode, to a chain of segments that end at `blocks`.

    Without `blocks`, they are the elements of sequences: layers of a top-level sequence, blocks of
    residual stages, transformer layers. Named blocks are not looked into. Raises `InvalidInput`
    for control flow that depends on data, for blocks that run twice or do not exist, and for
    modules that are not a chain.
    """
    module.eval()
    tracer = _Tracer(frozenset(blocks or ()))
    try:
        graph = tracer.trace(module)
    except TraceError as error:
        raise _refused(module, f"has control flow that depends on its data ({_told(error)})") from error
    except Exception as error:
        raise _refused(module, f"cannot be traced ({type(error).__name__}: {_told(error)})") from error
    nodes = list(graph.nodes)
    given = _only_input(module, nodes)
    cuts = _cuts(nodes, given)
    ends = {name: nodes.index(node) for name, node in tracer.outputs.items() if node in cuts}
    output = nodes[-1].args[0]
    if not isinstance(output, fx.Node):
        raise _refused(module, f"answers a {type(output).__name__}, no class scores")
    if blocks is None:
        found = sorted(_found(module, "", set(ends)), key=ends.__getitem__)
        require_once(module, [name for name in found if _has_weights(module.get_submodule(name))], tracer.calls)
        wanted = _with_weights(module, nodes, found, ends)
        if not wanted:
            raise _refused(module, "has no chain of two or more blocks with weights")
    else:
        if not blocks:
            raise _refused(module, "is given without a block to look after")
        require_once(module, blocks, tracer.calls)
        for name in blocks:
            if name not in ends:
                why = "is not called" if name not in tracer.outputs else "is not all that later blocks depend on"
                raise _refused(module, f"has a block {name!r} that {why}")
        inside = [(name, ends[name]) for name in blocks if nodes[ends[name]] is not output]
        if not inside:
            raise _refused(module, f"ends with {', '.join(blocks)}, and nothing is left to save")
        wanted = dict(sorted(inside, key=lambda pair: pair[1]))
    places = [given, *(nodes[at] for at in wanted.values()), output]
    body = fx.GraphModule(module, graph)
    fold_norms(body, places)
    _found_at_once(body)
    segments = tuple(_segment(body, a, b) for a, b in pairwise(places))
    return Chain(module, (*wanted, HEAD), segments, body, tuple(places))


def require_once(module: nn.Module, names: Sequence[str], calls: Counter[str]) -> None:
    for name in names:
        if calls[name] > 1:
            raise _refused(module, f"runs block {name!r} {calls[name]} times")


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
        raise _refused(chain.module, f"answers {told} for {len(rows)} rows, no class scores (n, classes)")
    if not torch.allclose(whole, last, **CLOSE, equal_nan=True):
        raise _refused(chain.module, "answers otherwise when its blocks run one by one")
    if last.shape[0] != len(rows) or not torch.allclose(last[:1], alone, **CLOSE, equal_nan=True):
        raise _refused(chain.module, "answers a row otherwise when other rows are beside it")
    return int(whole.shape[1])


def weights_sha256(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def device_of(module: nn.Module) -> torch.device:
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))


class _Tracer(fx.Tracer):
    """Traces a module; records the output node of each submodule and how often it is called."""

    def __init__(self, leaves: frozenset[str]) -> None:
        super().__init__()
        self.leaves = leaves
        self.outputs: dict[str, fx.Node] = {}
        self.calls: Counter[str] = Counter()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if module_qualified_name in self.leaves:
            return True
        return super().is_leaf_module(m, module_qualified_name) and not isinstance(m, nn.TransformerEncoder)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Trace a stack of transformer layers without masks as its layers; all else as fx does."""
        if isinstance(m, nn.TransformerEncoder) and len(args) == 1 and all(v is None for v in kwargs.values()):
            stack = m

            def forward(hidden: Any, **_: Any) -> Any:
                for layer in stack.layers:
                    hidden = layer(hidden)
                return hidden if stack.norm is None else stack.norm(hidden)

        output = super().call_module(m, forward, args, kwargs)
        name = self.path_of_module(m)
        self.calls[name] += 1
        if isinstance(output, fx.Proxy):
            self.outputs[name] = output.node
        return output


def _only_input(module: nn.Module, nodes: list[fx.Node]) -> fx.Node:
    """Return the only input; any further ones must have defaults, which are then used."""
    inputs = [node for node in nodes if node.op == "placeholder"]
    if not inputs or any(not node.args for node in inputs[1:]):
        raise _refused(module, f"takes {len(inputs) or 'no'} inputs")
    return inputs[0]


def _cuts(nodes: list[fx.Node], given: fx.Node) -> set[fx.Node]:
    """Nodes that alone determine all later nodes, apart from constants."""
    place = {node: i for i, node in enumerate(nodes)}
    made = {given}
    for node in nodes:
        if any(source in made for source in node.all_input_nodes):
            made.add(node)
    cuts, furthest = set(), -1
    for i, node in enumerate(nodes[:-1]):
        if node not in made:
            continue
        if furthest <= i and node is not given:
            cuts.add(node)
        furthest = max(furthest, *(place[user] for user in node.users), -1)
    return cuts


def _found(module: nn.Module, prefix: str, ends: set[str]) -> list[str]:
    names = []
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        opens = any(
            sum(f"{path}{inner and '.'}{inner}.{k}" in ends for k, _ in part.named_children()) > 1
            for inner, part in (("", child), *child.named_children())
            if isinstance(part, CONTAINERS)
        )
        inner_names = _found(child, f"{path}.", ends) if opens else []
        names += inner_names or [path] * (path in ends)
    return names


def _with_weights(
    module: nn.Module, nodes: list[fx.Node], names: Sequence[str], ends: dict[str, int]
) -> dict[str, int]:
    """Choose blocks such that each segment, and the rest, has weights of two or more dimensions."""
    heavy = [_is_heavy(module, node) for node in nodes]
    found: dict[str, int] = {}
    begin, last = 0, ""
    for name in names:
        at = ends[name]
        if any(heavy[begin : at + 1]):
            found[name], last = at, name
        elif last:
            found[last] = at
        else:
            continue
        begin = at + 1
    if last and not any(heavy[begin:]):
        del found[last]
    return found


def _is_heavy(module: nn.Module, node: fx.Node) -> bool:
    if node.op == "call_module":
        return _has_weights(module.get_submodule(str(node.target)))
    return False


def _has_weights(module: nn.Module) -> bool:
    return any(parameter.ndim >= 2 for parameter in module.parameters())


def _segment(body: fx.GraphModule, source: fx.Node, end: fx.Node) -> nn.Module:
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
    _found_at_once(segment)
    return segment


def _found_at_once(part: fx.GraphModule) -> None:
    """Find modules as attributes: a lookup by path takes a microsecond or more per call."""
    for node in part.graph.nodes:
        if node.op == "call_module":
            module, node.target = part.get_submodule(str(node.target)), f"run_{node.name}"
            part.__dict__[node.target] = module
    part.recompile()


def _refused(module: nn.Module, why: str) -> InvalidInput:
    return InvalidInput(f"{type(module).__name__} {why}", where="learned caches", remedy=SUPPORTED)


def _told(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
