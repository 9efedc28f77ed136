from pathlib import Path

import numpy as np

from gearshift.cli.views.rows.profile import facts_of_pipelines
from gearshift.measuring.passing import Flow
from gearshift.measuring.profile_pipelines import joint_records
from gearshift.models.config import PipelineSettings
from gearshift.models.samples import Samples
from gearshift.pipeline import Edge, FanOut, Node
from gearshift.profiles.pipelines.profile_folder import Profiles, RecordedPipeline
from gearshift.verbs.rows.profile import has_several
from tests.unit.profiles.pipelines.test_profile_folder import profile

ONE = 'operator = "a"\nsamples = "s.py:s"\n[models.m]\nload = "m.py:m"\n'
TWO = '[operators.a]\nfunction = "a.py:a"\nsamples = "s.py:s"\n[operators.b]\nfunction = "a.py:b"\nsamples = "s.py:s"\n'


def test_a_project_of_one_operator_is_profiled_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "gearshift.toml"
    assert not has_several(path), "where there is no project, profiling says so"
    path.write_text(ONE)
    assert not has_several(path)
    path.write_text(TWO)
    assert has_several(path)


def test_facts_name_operators_and_how_many_items_each_node_had() -> None:
    nodes = {
        "a": Node(operator="a", inputs={"x": "x"}),
        "b": Node(operator="b", inputs={"y": "a.y"}, fan_out=FanOut(per_row="a.y", most=3)),
        "c": Node(operator="a", inputs={"x": "b.z"}, fan_in=True),
    }
    edges = (Edge(from_="a", to="b"), Edge(from_="b", to="c"))
    settings = PipelineSettings(output="c", nodes=nodes, edges=edges, samples="s.py:s")
    flow = Flow("p", settings, Samples({"x": np.arange(2)}))
    flow.begin("a", 0)
    flow.results["a"] = [{"y": np.array([[1, 2]])}, {"y": np.array([[3]])}]
    flow.begin("b", 0)
    flow.results["b"] = [{"z": np.array([one])} for one in (1, 2, 3)]
    flow.begin("c", 2)
    records = joint_records(flow, np.array([0, 1], dtype=np.int8))
    recorded = RecordedPipeline(output="c", nodes=nodes, edges=edges, requests=2, right=0.5, warnings=("odd",))
    made = Profiles(
        operators={name: profile(name) for name in ("a", "b")}, pipelines={"p": recorded}, tuples={"p": records}
    )
    facts = facts_of_pipelines(made, Path("out"))
    assert facts["pipelines"] == [
        {"pipeline": "p", "requests": 2, "items": {"a": 2, "b": 3, "c": 2}, "right": 0.5, "warnings": ("odd",)}
    ]
    assert [one["profile"] for one in facts["operators"]] == ["out/a", "out/b"]  # type: ignore[attr-defined]
    assert records.row.tolist() == [0, 0, 1, 2, 1, 2, 3]
    assert records.parent.tolist() == [-1, -1, -1, -1, -1, -1, -1]
