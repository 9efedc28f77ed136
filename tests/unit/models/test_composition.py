from pathlib import Path

import pytest

import gearshift
from gearshift.errors import InvalidInput
from gearshift.models.config import read_project
from gearshift.pipeline import Edge, FanOut, Node, When


def digits() -> gearshift.Pipeline:
    p = gearshift.Pipeline("digits", samples="models.py:load_samples")
    parts = p.split(strip=p.request.strip).parts
    labels = [p.read(image=part).label for part in parts.each(most=8)]
    p.answer(p.join(labels=labels))
    return p


def test_a_comprehension_is_a_fan_out_and_its_list_is_gathered() -> None:
    p = digits()
    assert p.nodes == {
        "split": Node(operator="split", inputs={"strip": "strip"}),
        "read": Node(
            operator="read", inputs={"image": "split.parts"}, fan_out=FanOut(per_row="split.parts", most=8)
        ),
        "join": Node(operator="join", inputs={"labels": "read.label"}, fan_in=True),
    }  # fmt: skip
    assert p.edges == (Edge(from_="split", to="read"), Edge(from_="read", to="join"))
    assert p.output == "join"


def test_the_toml_is_read_as_the_same_pipeline(tmp_path: Path) -> None:
    p = digits()
    operators = '[operators.{0}]\nfunction = "steps.py:{0}"\n'
    text = "".join(operators.format(name) for name in ("split", "read", "join")) + p.toml()
    (tmp_path / "gearshift.toml").write_text(text)
    read = read_project(tmp_path / "gearshift.toml").pipelines["digits"]
    assert (read.nodes, read.edges, read.output, read.samples) == (p.nodes, p.edges, "join", p.samples)


def branching() -> gearshift.Pipeline:
    p = gearshift.Pipeline("pets")
    kind = p.kind(image=p.request.image)
    dog = p.dog(image=p.request.image, when=kind.label.one_of("dog", 3))
    cat = p.cat(image=p.request.image, when=kind.certainty >= 0.8, required=False)
    p.answer(p.add("answer", {"kind": kind.label, "dog": dog.label, "cat": cat.label}))
    return p


def test_a_condition_makes_the_only_edge_to_its_node() -> None:
    assert branching().edges == (
        Edge(from_="kind", to="dog", when=When(output="label", one_of=("dog", 3))),
        Edge(from_="kind", to="cat", when=When(output="certainty", at_least=0.8)),
        Edge(from_="kind", to="answer"),
        Edge(from_="dog", to="answer"),
        Edge(from_="cat", to="answer"),
    )


def test_conditions_and_options_are_in_the_toml(tmp_path: Path) -> None:
    p = branching()
    text = "".join(f'[operators.{name}]\nfunction = "a.py:f"\nsamples = "s.py:s"\n' for name in p.nodes) + p.toml()
    (tmp_path / "gearshift.toml").write_text(text)
    read = read_project(tmp_path / "gearshift.toml").pipelines["pets"]
    assert (read.nodes, read.edges) == (p.nodes, p.edges)


def test_a_node_that_gathers_may_take_tensors_from_before_the_fan_out() -> None:
    p = gearshift.Pipeline("digits")
    split = p.split(strip=p.request.strip)
    labels = [p.read(image=part).label for part in split.parts.each(most=8)]
    p.answer(p.join(labels=labels, width=split.width))
    assert p.edges[-1] == Edge(from_="read", to="join")
    assert p.nodes["join"].inputs == {"labels": "read.label", "width": "split.width"}


def test_nodes_of_one_operator_are_numbered() -> None:
    p = gearshift.Pipeline("twice")
    first = p.clean(text=p.request.text)
    p.answer(p.clean(text=first.text))
    assert list(p.nodes) == ["clean", "clean_2"]


def refusal(build) -> str:
    with pytest.raises(InvalidInput) as caught:
        build(gearshift.Pipeline("p"))
    return str(caught.value)


def test_two_outputs_are_refused() -> None:
    def build(p):
        p.answer(p.f(x=p.request.x))
        p.answer(p.request)

    assert "the pipeline has two outputs, 'f' and ''" in refusal(build)


def test_a_node_that_leads_nowhere_is_refused() -> None:
    def build(p):
        p.g(x=p.request.x)
        p.answer(p.f(x=p.request.x))

    assert "nodes ['g'] do not lead to the output 'f'" in refusal(build)


def test_a_row_that_is_not_gathered_is_refused() -> None:
    def build(p):
        for part in p.split(x=p.request.x).parts.each(most=3):
            p.answer(p.read(x=part))

    assert "the output node 'read' runs for each row of a fan-out; give it fan_in" in refusal(build)


def test_a_row_that_two_nodes_take_is_refused() -> None:
    def build(p):
        for part in p.split(x=p.request.x).parts.each(most=3):
            p.read(x=part)
            p.look(x=part)

    assert "node 'look' takes a row of split.parts, and so does a node before it" in refusal(build)


def test_a_value_that_is_no_tensor_is_refused() -> None:
    assert "node 'f' is given int as 'x'; give a tensor" in refusal(lambda p: p.f(x=3))
    assert "is given list as 'x'" in refusal(lambda p: p.f(x=[p.request.a, p.request.b]))


def test_a_condition_on_the_request_is_refused() -> None:
    assert "a condition is on 'x' of the request" in refusal(lambda p: p.f(x=p.request.x, when=p.request.x >= 1))


def test_a_pipeline_without_an_answer_has_no_toml() -> None:
    assert "pipeline 'p' has no answer; call answer" in refusal(lambda p: p.toml())
