"""Trace a PyTorch module and cut it into a chain; its code and weights stay unchanged."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import fx, nn
from torch.fx.proxy import TraceError
from torch.nn.utils.fusion import fuse_conv_bn_eval

from gearshift.caches.network.chain import HEAD, Chain, find_modules_at_once, not_a_chain, one_line, segment_of

CONTAINERS = (nn.Sequential, nn.ModuleList)
CONVOLUTIONS = {nn.BatchNorm1d: nn.Conv1d, nn.BatchNorm2d: nn.Conv2d, nn.BatchNorm3d: nn.Conv3d}
PRECISE = {torch.float32, torch.float64}


def chain_of(module: nn.Module, blocks: Sequence[str] | None = None) -> Chain:
    """Convert `module`, set to evaluation mode, to a chain of segments that end at `blocks`.

    Without `blocks`, they are the elements of sequences: layers of a top-level sequence, blocks of
    residual stages, transformer layers. Named blocks are not looked into. Raises `InvalidInput`
    for control flow that depends on data, for blocks that run twice or do not exist, and for
    modules that are not a chain.
    """
    module.eval()
    tracer = _Tracer(frozenset(blocks or ()))
    graph = _traced(module, tracer)
    nodes = list(graph.nodes)
    given = _only_input(module, nodes)
    cuts = _cuts(nodes, given)
    ends = {name: nodes.index(node) for name, node in tracer.outputs.items() if node in cuts}
    output = nodes[-1].args[0]
    if not isinstance(output, fx.Node):
        raise not_a_chain(module, f"answers a {type(output).__name__}, no class scores")
    if blocks is None:
        wanted = _found_blocks(module, nodes, ends, tracer)
    else:
        wanted = _named_blocks(module, blocks, ends, output, tracer)
    places = [given, *(nodes[at] for at in wanted.values()), output]
    body = fx.GraphModule(module, graph)
    fold_norms(body, places)
    find_modules_at_once(body)
    segments = tuple(segment_of(body, a, b) for a, b in pairwise(places))
    return Chain(module, (*wanted, HEAD), segments, body, tuple(places))


def _traced(module: nn.Module, tracer: "_Tracer") -> fx.Graph:
    try:
        return tracer.trace(module)
    except TraceError as error:
        raise not_a_chain(module, f"has control flow that depends on its data ({one_line(error)})") from error
    except Exception as error:
        raise not_a_chain(module, f"cannot be traced ({type(error).__name__}: {one_line(error)})") from error


def _found_blocks(module: nn.Module, nodes: list[fx.Node], ends: dict[str, int], tracer: "_Tracer") -> dict[str, int]:
    found = sorted(_found(module, "", set(ends)), key=ends.__getitem__)
    _require_once(module, [name for name in found if _has_weights(module.get_submodule(name))], tracer.calls)
    wanted = _with_weights(module, nodes, found, ends)
    if not wanted:
        raise not_a_chain(module, "has no chain of two or more blocks with weights")
    return wanted


def _named_blocks(
    module: nn.Module, blocks: Sequence[str], ends: dict[str, int], output: fx.Node, tracer: "_Tracer"
) -> dict[str, int]:
    if not blocks:
        raise not_a_chain(module, "is given without a block to look after")
    _require_once(module, blocks, tracer.calls)
    for name in blocks:
        if name not in ends:
            why = "is not called" if name not in tracer.outputs else "is not all that later blocks depend on"
            raise not_a_chain(module, f"has a block {name!r} that {why}")
    inside = [(name, ends[name]) for name in blocks if tracer.outputs[name] is not output]
    if not inside:
        raise not_a_chain(module, f"ends with {', '.join(blocks)}, and nothing is left to save")
    return dict(sorted(inside, key=lambda pair: pair[1]))


def _require_once(module: nn.Module, names: Sequence[str], calls: Counter[str]) -> None:
    for name in names:
        if calls[name] > 1:
            raise not_a_chain(module, f"runs block {name!r} {calls[name]} times")


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
        raise not_a_chain(module, f"takes {len(inputs) or 'no'} inputs")
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
        if inner_names:
            names += inner_names
        elif path in ends:
            names.append(path)
    return names


def _with_weights(
    module: nn.Module, nodes: list[fx.Node], names: Sequence[str], ends: dict[str, int]
) -> dict[str, int]:
    """Choose blocks such that each segment, and the rest, has weights of two or more dimensions."""
    heavy = [node.op == "call_module" and _has_weights(module.get_submodule(str(node.target))) for node in nodes]
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


def _has_weights(module: nn.Module) -> bool:
    return any(parameter.ndim >= 2 for parameter in module.parameters())


def fold_norms(body: fx.GraphModule, kept: Collection[fx.Node]) -> None:
    """Fold each norm in `body` into the convolution before it, if that has no other user.

    `body` is in evaluation mode. The result has its own weights, so later changes of the module's
    do not reach it. Not folded are convolutions that are `kept`, modules of derived types, with
    hooks or without running averages, which may compute something else, and numbers below single
    precision, which would round too much.
    """
    for norm in list(body.graph.nodes):
        before = norm.args[0] if norm.op == "call_module" and norm.args else None
        if not isinstance(before, fx.Node) or before.op != "call_module" or before in kept:
            continue
        parts = [body.get_submodule(str(node.target)) for node in (before, norm)]
        if list(before.users) == [norm] and _foldable(*parts):
            norm.target = f"folded_{norm.name}"
            body.add_submodule(norm.target, fuse_conv_bn_eval(*parts).requires_grad_(False))  # type: ignore[type-var, arg-type]
            norm.args, norm.kwargs = before.args, before.kwargs
            body.graph.erase_node(before)
    body.recompile()


def _foldable(convolution: nn.Module, norm: Any) -> bool:
    plain = type(convolution) is CONVOLUTIONS.get(type(norm)) and norm.running_mean is not None and not norm.training
    precise = plain and {convolution.weight.dtype, norm.running_mean.dtype} <= PRECISE
    return precise and not any(
        part._forward_hooks or part._forward_pre_hooks or part._backward_hooks for part in (convolution, norm)
    )
