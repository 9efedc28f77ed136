"""The tensors that a request to a pipeline has: those that its nodes take from it."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gearshift.errors import require
from gearshift.model import TensorSpec
from gearshift.pipeline import Node


def request_inputs(
    nodes: Mapping[str, Node], inputs_of: Mapping[str, Sequence[TensorSpec]], *, where: str
) -> tuple[TensorSpec, ...]:
    """The request's tensors, in the order in which nodes name them; `inputs_of` are by operator.

    Raises `InvalidInput` where two nodes take a tensor as different types or shapes.
    """
    found: dict[str, tuple[str, TensorSpec]] = {}
    for name, node in nodes.items():
        for spec in _taken(node, inputs_of[node.operator]):
            first, known = found.setdefault(spec.name, (name, spec))
            require(
                known.datatype == spec.datatype and len(known.shape) == len(spec.shape),
                f"nodes {first!r} and {name!r} take {spec.name!r} as {_told(known)} and as {_told(spec)}",
                where=where,
                remedy="give one of them another tensor of the request",
            )
    require(bool(found), "no node takes a tensor of the request", where=where, remedy="name one in a node's inputs")
    return tuple(spec for _, spec in found.values())


def _taken(node: Node, inputs: Sequence[TensorSpec]) -> Iterator[TensorSpec]:
    specs = {spec.name: spec for spec in inputs}
    taken = node.inputs or {name: name for name in specs}
    per_row = None if node.fan_out is None else node.fan_out.per_row
    for to, tensor in taken.items():
        if "." in tensor or to not in specs:
            continue
        spec = specs[to]
        shape = (-1, *spec.shape) if tensor == per_row else spec.shape
        yield msgspec.structs.replace(spec, name=tensor, shape=shape)


def _told(spec: TensorSpec) -> str:
    return f"{spec.datatype} {list(spec.shape)}"
