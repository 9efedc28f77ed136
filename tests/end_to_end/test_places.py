"""Run times of several kinds of devices in one file of records, from the file to a plan and its simulation."""

from pathlib import Path

import msgspec
import pytest

import gearshift
from gearshift.hardware import Device, Hardware, identical_devices
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import run_times_ns
from gearshift.profiles.store import read_profile
from gearshift.traces.generate import steady
from gearshift.verbs.planning.hardware import profiled_devices
from tests.little_task import little_plan

RUN_TIMES = """\
model,batch_size,seconds,seconds_p95,device_kind,cores,tensor_parallel,segment,memory_bytes
small,1,0.010,0.012,cpu,1,1,0,1000
small,8,0.040,0.048,cpu,1,1,0,1000
small,1,0.006,0.007,cpu,2,1,0,1000
small,8,0.022,0.026,cpu,2,1,0,1000
large,1,0.100,0.120,cpu,1,1,0,9000
large,8,0.700,0.840,cpu,1,1,0,9000
small,1,0.001,,cuda-x,1,1,0,1500
small,8,0.002,,cuda-x,1,1,0,1500
large,1,0.004,,cuda-x,1,1,0,9500
large,8,0.008,,cuda-x,1,1,0,9500
large,1,0.003,,cuda-x,1,2,0,5000
large,8,0.005,,cuda-x,1,2,0,5000
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("places")
    rows = [f"{i},small,{i % 2},0.{i}\n{i},large,1,0.9" for i in range(10)]
    (folder / "predictions.csv").write_text("\n".join(["sample,model,correct,certainty", *rows]))
    (folder / "runtimes.csv").write_text(RUN_TIMES)
    gearshift.profile_from_records(folder, operator="sums", out=folder / "profile")
    return folder


def profile_in(folder: Path) -> Profile:
    return read_profile(folder / "profile")


def test_each_place_keeps_its_own_curve(folder: Path) -> None:
    told = {
        (c.model, c.device_kind, c.cores, c.tensor_parallel): (c.median_s, c.p95_s[0], c.memory_bytes)
        for c in profile_in(folder).curves
    }
    assert told == {
        ("small", "cpu", 1, 1): ((0.010, 0.040), 0.012, 1000),
        ("small", "cpu", 2, 1): ((0.006, 0.022), 0.007, 1000),
        ("large", "cpu", 1, 1): ((0.100, 0.700), 0.120, 9000),
        ("small", "cuda-x", 1, 1): ((0.001, 0.002), 0.001, 1500),
        ("large", "cuda-x", 1, 1): ((0.004, 0.008), 0.004, 9500),
        ("large", "cuda-x", 1, 2): ((0.003, 0.005), 0.003, 5000),
    }


def test_a_plan_is_made_for_any_of_the_kinds(folder: Path) -> None:
    profile, trace = profile_in(folder), steady(100, duration_s=5)
    plan = gearshift.plan(profile, trace, devices=identical_devices(1, kind="cuda-x"), latency_s=0.05)
    assert plan.hardware.devices[0].kind == "cuda-x"
    assert plan.predictions["sums"].accuracy > 0.99
    assert gearshift.simulate(plan, trace, profile=profile).latency_s.max() < 0.05


def test_replicas_take_the_run_times_of_their_devices_and_their_degree(folder: Path) -> None:
    devices = [Device(id="c", kind="cpu"), *(Device(id=f"g{i}", kind="cuda-x") for i in range(2))]
    placement = Placement(
        replicas=(
            Replica(id="small-0", model="small", device_ids=("c",)),
            Replica(id="large-0", model="large", device_ids=("g0", "g1"), tensor_parallel=2),
        )
    )
    plan = msgspec.structs.replace(little_plan(""), hardware=Hardware(devices=tuple(devices)), placement=placement)
    tables = plan_tables(plan)
    nanoseconds = dict(zip(tables.replica_ids, run_times_ns(plan, tables, profile_in(folder)).tolist(), strict=True))
    assert (nanoseconds["small-0"][1], nanoseconds["small-0"][8]) == (10_000_000, 40_000_000)
    assert (nanoseconds["large-0"][1], nanoseconds["large-0"][8]) == (3_000_000, 5_000_000)


def test_devices_as_profiled_hold_each_model_once(folder: Path) -> None:
    first = profiled_devices(profile_in(folder), 1)
    assert (first.devices[0].kind, first.devices[0].cores) == ("cpu", 1)
