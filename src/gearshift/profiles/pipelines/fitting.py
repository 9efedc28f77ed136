"""Whether the nodes of a pipeline fit together: their operators' tensors, and labels in conditions."""

from collections.abc import Mapping, Sequence

from gearshift.errors import require
from gearshift.model import LABEL, TensorSpec
from gearshift.models.classes import class_name
from gearshift.pipeline import Edge, Node, Scope, scopes_of
from gearshift.profiles.profile import Profile

CERTAINTY = "certainty"
MOST_NAMED = 8

Specs = Sequence[TensorSpec]


def require_fits(
    pipeline: str, nodes: Mapping[str, Node], edges: Sequence[Edge], profiles: Mapping[str, Profile]
) -> None:
    """Raise `InvalidInput` where a node lacks an input, or is passed one that does not fit.

    `profiles` are by operator, and know their tensors, or none is checked; conditions on a label
    need one that some model of the operator answers.
    """
    request: dict[str, tuple[str, TensorSpec]] = {}
    scopes = scopes_of(nodes, edges)
    for name, node in nodes.items():
        where = f"pipeline {pipeline!r}, node {name!r}"
        wanted = {spec.name: spec for spec in profiles[node.operator].inputs}
        for to, tensor in inputs_of(node, tuple(wanted.values())).items():
            require(
                to in wanted or not wanted,
                f"it passes {to!r} to operator {node.operator!r}, which takes {_named(wanted)}",
                where=where,
                remedy="mend the node's inputs",
            )
            given = _passed(tensor, name, nodes, scopes, profiles)
            source, _, _ = tensor.rpartition(".")
            if given is None and source:
                others = _named({spec.name for spec in profiles[nodes[source].operator].outputs})
                require(
                    not profiles[nodes[source].operator].outputs,
                    f"it takes {tensor!r}, and node {source!r} answers {others}",
                    where=where,
                    remedy="mend the node's inputs",
                )
            elif not source and to in wanted:
                other, given = request.setdefault(tensor, (name, of_request(tensor, wanted[to], node)))
                require_same(tensor, given, of_request(tensor, wanted[to], node), where=f"{where} and {other!r}")
            elif given is not None and to in wanted:
                require_same(tensor, given, wanted[to], where=where)
        lacking = [to for to in wanted if to not in inputs_of(node, tuple(wanted.values()))]
        require(
            not lacking,
            f"operator {node.operator!r} takes {lacking[0]!r}, and the node does not pass it" if lacking else "",
            where=where,
            remedy="add it to the node's inputs",
        )
    for edge in edges:
        require_condition(pipeline, edge, profiles[nodes[edge.from_].operator])


def inputs_of(node: Node, takes: Specs) -> Mapping[str, str]:
    """The tensor for each input of the node's operator; without any named, those of the request."""
    return node.inputs or {spec.name: spec.name for spec in takes}


def of_request(tensor: str, spec: TensorSpec, node: Node) -> TensorSpec:
    """The request's tensor that is passed as `spec`: with rows inside, where the node fans out over it."""
    over_it = node.fan_out is not None and node.fan_out.per_row == tensor
    shape = (-1, -1, *spec.shape[1:]) if over_it else spec.shape
    return TensorSpec(name=tensor, datatype=spec.datatype, shape=shape, missing=spec.missing)


def _passed(
    tensor: str, to: str, nodes: Mapping[str, Node], scopes: Mapping[str, Scope], profiles: Mapping[str, Profile]
) -> TensorSpec | None:
    """An output as the node `to` is passed it; None for an unknown one, or one of the request."""
    source, _, name = tensor.rpartition(".")
    outputs = profiles[nodes[source].operator].outputs if source else ()
    spec = next((one for one in outputs if one.name == name), None)
    if spec is None:
        return None
    fan_out = nodes[to].fan_out
    if fan_out is not None and fan_out.per_row == tensor:
        require(
            len(spec.shape) >= 2,
            f"tensor {tensor!r} has shape {list(spec.shape)}, and so has no rows to run once for each",
            where=f"node {to!r}, fan_out",
            remedy="name a tensor with one more dimension",
        )
        return TensorSpec(name=name, datatype=spec.datatype, shape=(-1, *spec.shape[2:]))
    shape = (-1, *spec.shape) if is_gathered(source, to, nodes, scopes) else spec.shape
    return TensorSpec(name=name, datatype=spec.datatype, shape=shape)


def is_gathered(source: str, to: str, nodes: Mapping[str, Node], scopes: Mapping[str, Scope]) -> bool:
    """Whether node `to` gets a list of rows from `source`, because it closes the fan-out around it."""
    opener = scopes[source].opener
    return nodes[to].fan_in and bool(opener) and scopes[opener].counted_in == scopes[to].counted_in


def require_same(tensor: str, given: TensorSpec, wanted: TensorSpec, *, where: str) -> None:
    """Raise `InvalidInput` unless `given` can be passed as `wanted`; -1 fits any dimension."""
    fits = len(given.shape) == len(wanted.shape) and all(
        a == b or -1 in (a, b) for a, b in zip(given.shape[1:], wanted.shape[1:], strict=True)
    )
    require(
        fits and given.datatype == wanted.datatype,
        f"tensor {tensor!r} is {given.datatype} {list(given.shape)}, and is passed as {wanted.name!r}, which is "
        f"{wanted.datatype} {list(wanted.shape)}",
        where=where,
        remedy="let both be the same, or put a function between them",
    )


def require_condition(pipeline: str, edge: Edge, profile: Profile) -> None:
    """Raise `InvalidInput` for a condition on an output or a label that its operator never answers."""
    if edge.when is None:
        return
    where = f"pipeline {pipeline!r}, edge from {edge.from_!r} to {edge.to!r}"
    outputs = {spec.name: spec for spec in profile.outputs}
    require(
        edge.when.output in outputs or edge.when.output == CERTAINTY or not outputs,
        f"its condition is on {edge.when.output!r}, and operator {profile.operator!r} answers "
        f"{_named({*outputs, CERTAINTY})}",
        where=where,
        remedy="name one of these",
    )
    spec = outputs.get(edge.when.output)
    require(
        edge.when.at_least is None or spec is None or spec.datatype != "BYTES",
        f"its condition compares {edge.when.output!r}, which is text, with a number",
        where=where,
        remedy="use one_of",
    )
    said = profile.predictions.prediction
    if edge.when.one_of is None or edge.when.output != LABEL or said is None:
        return
    answered = sorted(set(said.ravel().tolist()))
    strange = [value for value in edge.when.one_of if class_name(value) not in answered]
    require(
        not strange,
        f"its condition waits for the label {strange[0]!r}, which no model of operator {profile.operator!r} answers"
        if strange
        else "",
        where=where,
        remedy=f"use one of {_named(answered)}",
    )


def _named(names: Mapping[str, object] | set[str] | Sequence[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else ""
    return ", ".join(map(repr, listed[:MOST_NAMED])) + more or "nothing"
