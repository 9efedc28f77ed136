"""The profiles, joint records and project of a plan's pipeline, as they lie in folders."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gearshift.bulk.measured import measured_of
from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan, LoadRange, ReplicaSettings, SourceFile
from gearshift.model import TensorSpec
from gearshift.placement import Placement, Replica
from gearshift.profiles.pipelines.profile_folder import Profiles, RecordedPipeline, write_profiles
from tests.little_task import little_profile
from tests.unit.bulk.test_tuple_choice import LARGE, MODELS
from tests.unit.planner.joint.strips import EDGES, NODES, TUPLES, strips

IMAGE = TensorSpec(name="image", datatype="FP32", shape=(-1, 8))


@pytest.fixture
def plan(tmp_path: Path) -> GearPlan:
    request = strips(latency_s=0.1)
    (tmp_path / "gearshift.toml").touch()
    inputs = {"split": (IMAGE,)}
    measured = {
        name: replace(one, inputs=inputs.get(name, ()), project="../../gearshift.toml")
        for name, one in request.profiles.items()
    }
    recorded = RecordedPipeline(output="join", nodes=NODES, edges=EDGES, requests=TUPLES)
    whole = Profiles(operators=measured, pipelines={"strips": recorded}, tuples={"strips": request.records})
    written = write_profiles(whole, tmp_path / "profile").operators
    replicas = tuple(Replica(id=model, model=model, device_ids=("cpu-0",)) for model in MODELS)
    settings = [ReplicaSettings(replica=model, load_share=float(model != "small")) for model in MODELS]
    made = request.plan(Placement(replicas=replicas), [request.gear(LoadRange(from_=0), LARGE, settings)])
    sources = {name: SourceFile(path=f"profile/{name}", sha256=one.sha256) for name, one in written.items()}
    return msgspec.structs.replace(made, profiles=sources)


def test_a_graph_has_the_profiles_of_all_operators_and_its_joint_records(plan, tmp_path):
    for folder, profile in ((tmp_path, None), (None, tmp_path / "profile")):
        measured = measured_of(plan, "strips", folder, profile)
        assert list(measured.sources) == ["split", "read", "join"]
        assert {source.project for source in measured.sources.values()} == {tmp_path / "gearshift.toml"}
        assert measured.inputs == (IMAGE,)
        assert measured.records is not None
        np.testing.assert_array_equal(measured.records.part, strips(latency_s=0.1).records.part)


def test_a_graph_without_joint_records_has_none(plan, tmp_path):
    (tmp_path / "profile" / "strips" / "tuples.csv").unlink()
    assert measured_of(plan, "strips", tmp_path).records is None


def test_profiles_that_are_not_those_of_the_plan_are_refused(plan, tmp_path):
    with pytest.raises(InvalidInput, match="one profile is given, and pipeline 'strips' has several operators"):
        measured_of(plan, "strips", tmp_path, little_profile())
    other = msgspec.structs.replace(plan.profiles["read"], sha256="0")
    with pytest.raises(InvalidInput, match="the plan was made from another profile"):
        measured_of(msgspec.structs.replace(plan, profiles={**plan.profiles, "read": other}), "strips", tmp_path)
    with pytest.raises(InvalidInput, match="a plan that was not read from a file needs its profile"):
        measured_of(plan, "strips", None)
