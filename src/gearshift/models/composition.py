"""Write a pipeline in Python as a composition of its operators, and as the TOML of a project file."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from gearshift.errors import InvalidInput, require
from gearshift.pipeline import Edge, FanOut, Node, When, require_graph


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A condition on an output of a node, under which a later node runs."""

    source: str
    when: When


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """An output of a node, or with an empty `node` an input of the request."""

    node: str
    name: str
    fan_out: FanOut | None = None
    """Set where it is one row of the tensor."""
    gathered: bool = False

    def __str__(self) -> str:
        return f"{self.node}.{self.name}" if self.node else self.name

    def each(self, *, most: int, beyond: Literal["refuse", "cut"] = "refuse") -> Iterator["Tensor"]:
        """Run the body of a comprehension for each row of the tensor, up to `most` in a request.

        `[p.read(image=part).label for part in parts.each(most=8)]` makes one node that runs for
        each row, and a list that only a node which gathers all rows can take.
        """
        yield Tensor(self.node, self.name, fan_out=FanOut(per_row=str(self), most=most, beyond=beyond))

    def one_of(self, *values: str | int) -> Condition:
        return self._condition(When(output=self.name, one_of=values))

    def __ge__(self, least: float) -> Condition:
        return self._condition(When(output=self.name, at_least=float(least)))

    def _condition(self, when: When) -> Condition:
        require(bool(self.node), f"a condition is on {self.name!r} of the request", remedy="use an output of a node")
        return Condition(self.node, when)


@dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs of a node, or the inputs of the request (`node` is empty): `outputs.label`."""

    _node: str

    def __getattr__(self, name: str) -> Tensor:
        if name.startswith("_"):
            raise AttributeError(name)
        return Tensor(self._node, name)

    def __getitem__(self, name: str) -> Tensor:
        return Tensor(self._node, name)


Value = Tensor | Sequence[Tensor]


@dataclass(slots=True, eq=False)
class Pipeline:
    """A pipeline that is written as Python.

    Each call of an attribute that is named like an operator adds a node, and returns its outputs.
    `request` holds the inputs of the request, `answer` names the node that answers it::

        p = gearshift.Pipeline("digits")
        parts = p.split(strip=p.request.strip).parts
        labels = [p.read(image=part).label for part in parts.each(most=8)]
        p.answer(p.join(labels=labels))
        print(p.toml())

    Nodes are only noted, nothing runs. `nodes`, `edges` and `output` are those of the plan file.
    An operator that is named like an attribute of this class is added with `add`.
    """

    name: str
    samples: str = ""
    nodes: dict[str, Node] = field(default_factory=dict)
    edges: tuple[Edge, ...] = ()
    output: str = ""
    request: Outputs = field(default_factory=lambda: Outputs(""))
    _rows: list[Tensor] = field(default_factory=list)
    """Rows of fan-outs that a node has taken."""

    def __getattr__(self, operator: str) -> "Call":
        if operator.startswith("_"):
            raise AttributeError(operator)
        return Call(self, operator)

    def add(
        self,
        operator: str,
        inputs: Mapping[str, Value],
        *,
        node: str = "",
        when: Condition | Sequence[Condition] = (),
        join: Literal["all", "first"] = "all",
        required: bool = True,
    ) -> Outputs:
        """Add a node that runs `operator`, and return its outputs.

        `inputs` are by the operator's names; a list stands for all rows of a fan-out. With `when`
        the node runs only if one of the conditions holds. Its name is `node`, by default the
        operator's, with a number where that is taken.
        """
        name = node or self._free_name(operator)
        require(name not in self.nodes, f"there are two nodes {name!r}", remedy="give one of them another name")
        tensors = {to: self._tensor(name, to, value) for to, value in inputs.items()}
        fan_outs = {one.fan_out.per_row: one.fan_out for one in tensors.values() if one.fan_out is not None}
        require(len(fan_outs) <= 1, f"node {name!r} runs for each row of {sorted(fan_outs)}, can do so for one tensor")
        fan_out = next(iter(fan_outs.values()), None)
        self._take_rows(name, [one for one in inputs.values() if isinstance(one, Tensor) and one.fan_out])
        self.edges += self._edges_to(name, tensors.values(), (when,) if isinstance(when, Condition) else tuple(when))
        self.nodes[name] = Node(
            operator=operator,
            inputs={to: str(one) for to, one in tensors.items()},
            fan_out=fan_out,
            fan_in=any(one.gathered for one in tensors.values()),
            join=join,
            required=required,
        )
        return Outputs(name)

    def answer(self, outputs: Outputs) -> None:
        """Let the request be answered by a node's outputs; raises `InvalidInput` for a wrong graph."""
        require(not self.output, f"the pipeline has two outputs, {self.output!r} and {outputs._node!r}")
        require_graph(self.nodes, self.edges, outputs._node)
        self.output = outputs._node

    def toml(self) -> str:
        """The pipeline as a part of `gearshift.toml`."""
        require(bool(self.output), f"pipeline {self.name!r} has no answer", remedy="call answer(...)")
        at = f"pipelines.{_key(self.name)}"
        lines = [f"[{at}]", f"output = {_value(self.output)}"]
        lines += [f"samples = {_value(self.samples)}"] if self.samples else []
        if self.edges:
            lines += ["edges = [", *(f"    {_value(msgspec.to_builtins(edge))}," for edge in self.edges), "]"]
        for name, node in self.nodes.items():
            lines += ["", f"[{at}.nodes.{_key(name)}]"]
            lines += [f"{one} = {_value(value)}" for one, value in msgspec.to_builtins(node).items()]
        return "\n".join(lines) + "\n"

    def _free_name(self, operator: str) -> str:
        numbers = range(2, len(self.nodes) + 3)
        return next(one for one in (operator, *(f"{operator}_{i}" for i in numbers)) if one not in self.nodes)

    def _take_rows(self, node: str, rows: Sequence[Tensor]) -> None:
        twice = [row for row in rows if any(row is taken for taken in self._rows)]
        require(
            not twice,
            f"node {node!r} takes a row of {twice[0]}, and so does a node before it" if twice else "",
            remedy="let the first node pass the row on as an output, or begin another comprehension over `each`",
        )
        self._rows += rows

    def _tensor(self, node: str, to: str, value: Value) -> Tensor:
        if isinstance(value, Tensor):
            return value
        one = value[0] if isinstance(value, Sequence) and len(value) == 1 else None
        if not isinstance(one, Tensor):
            raise InvalidInput(
                f"node {node!r} is given {type(value).__name__} as {to!r}",
                remedy="give a tensor, or the list of a comprehension over `each`",
            )
        return Tensor(one.node, one.name, gathered=True)

    def _edges_to(self, node: str, tensors: Collection[Tensor], conditions: Sequence[Condition]) -> tuple[Edge, ...]:
        """Edges from the conditions' nodes; without conditions from all nodes whose outputs it takes."""
        if conditions:
            return tuple(Edge(from_=one.source, to=node, when=one.when) for one in conditions)
        sources = dict.fromkeys(one.node for one in tensors if one.node)
        return tuple(Edge(from_=source, to=node) for source in self._innermost(sources))

    def _innermost(self, sources: Mapping[str, None]) -> list[str]:
        """Leave out sources outside of the fan-out that the others run in, which come before it."""
        before = {name: self._before(name) for name in sources}
        openers = {name: {one for one in (name, *before[name]) if self.nodes[one].fan_out} for name in sources}
        return [
            name
            for name in sources
            if not any(name in before[other] and openers[name] < openers[other] for other in sources)
        ]

    def _before(self, node: str) -> set[str]:
        near = {edge.from_ for edge in self.edges if edge.to == node}
        return near | {far for one in near for far in self._before(one)}


@dataclass(frozen=True, slots=True)
class Call:
    """An operator of a pipeline, about to be given its inputs."""

    pipeline: Pipeline
    operator: str

    def __call__(
        self,
        inputs: Mapping[str, Value] | None = None,
        /,
        *,
        node: str = "",
        when: Condition | Sequence[Condition] = (),
        join: Literal["all", "first"] = "all",
        required: bool = True,
        **named: Value,
    ) -> Outputs:
        """See `Pipeline.add`; inputs are given by name, or as a mapping."""
        given = {**(inputs or {}), **named}
        return self.pipeline.add(self.operator, given, node=node, when=when, join=join, required=required)


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else json.dumps(name)


def _value(value: Any) -> str:
    """A value in TOML, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {_value(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)
