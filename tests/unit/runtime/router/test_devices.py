"""What a worker is told of its devices."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import uvloop

from gearshift.errors import GearshiftError, InvalidInput
from gearshift.gear import GearPlan
from gearshift.hardware import Device, Hardware, identical_devices, is_cuda
from gearshift.measuring.profile_project import profile_project
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_tables import plan_tables
from gearshift.request import Request, Sample
from gearshift.runtime.backends.base import Batch
from gearshift.runtime.backends.local import LocalBackend, cuda_places
from gearshift.runtime.backends.workers_backend import OperatorSource
from gearshift.runtime.workers.worker_process import visible_cuda
from tests.conformance.test_backend_contract import Events
from tests.little_task import INPUTS, little_plan, write_little_task
from tests.unit.measuring.test_profile_project import PROJECT
from tests.unit.measuring.test_profile_project import project as write_project

TELLS = """
import os
import numpy as np

def tells():
    def model(x):
        seen = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
        return {"sees": np.array([seen] * len(x))}, np.ones(len(x))
    return model

small = large = tells
"""


@pytest.mark.parametrize(("kind", "cuda"), [("cuda", True), ("cuda-x", True), ("cpu", False), ("cudax", False)])
def test_a_kind_says_whether_it_is_cuda(kind: str, cuda: bool) -> None:
    assert is_cuda(kind) == cuda


def test_cuda_devices_are_counted_per_node_without_the_others() -> None:
    devices = [("a", "n", "cuda"), ("b", "n", "cpu"), ("c", "n", "cuda-x"), ("d", "m", "cuda")]
    hardware = Hardware(devices=tuple(Device(id=id_, node=node, kind=kind) for id_, node, kind in devices))
    assert cuda_places(hardware) == {"a": 0, "c": 1, "d": 0}


@pytest.mark.parametrize(
    ("places", "seen", "value"),
    [((0,), None, "0"), ((1, 2), None, "1,2"), ((1,), "4,7", "7"), ((0,), "GPU-9", "GPU-9")],
)
def test_devices_are_chosen_among_those_that_are_seen(places: tuple[int, ...], seen: str | None, value: str) -> None:
    assert visible_cuda(places, seen) == value


@pytest.mark.parametrize("seen", ["", "4"])
def test_more_devices_than_are_seen_are_refused(seen: str) -> None:
    with pytest.raises(InvalidInput, match=f"the plan needs 2 CUDA devices, but CUDA_VISIBLE_DEVICES is '{seen}'; let"):
        visible_cuda((1,), seen)


def told_by(folder: Path, plan: GearPlan) -> dict[str, str]:
    """Which CUDA devices the worker of each replica sees."""
    write_little_task(folder)
    (folder / "task.py").write_text(TELLS)
    tables = plan_tables(plan)
    cores = {device.id: frozenset({0}) for device in plan.hardware.devices}
    backend = LocalBackend(
        tables, plan, operators=[OperatorSource(project=folder / "gearshift.toml", inputs=INPUTS)], cores=cores
    )

    async def main() -> dict[str, str]:
        events, told = Events(), {}
        await backend.start(events)
        for replica, name in enumerate(tables.replica_ids):
            sample = Sample(Request(id=1, operator="sums", arrived_ns=0), 0, 0, {"x": np.ones((1, 2))})
            backend.run(Batch(replica, replica, [sample]))
            await events.until(lambda seen, replica=replica: ("batch", replica) in seen)
            told[name] = str(sample.result["sees"][0])  # type: ignore[index]
        await backend.stop()
        return told

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def test_each_worker_sees_the_cuda_devices_of_its_replicas_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    placement = Placement(
        replicas=(
            Replica(id="small-0", model="small", device_ids=("cuda-0",)),
            Replica(id="large-0", model="large", device_ids=("cuda-1", "cuda-2"), tensor_parallel=2),
        )
    )
    hardware = identical_devices(3, kind="cuda")
    plan = msgspec.structs.replace(little_plan(""), hardware=hardware, placement=placement)
    assert told_by(tmp_path, plan) == {"small-0": "0", "large-0": "1,2"}


def test_a_worker_on_processors_sees_what_its_parent_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert told_by(tmp_path, little_plan("")) == {"small-0": "all", "large-0": "all"}


def test_a_plan_for_more_cuda_devices_than_are_seen_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    hardware = Hardware(devices=(Device(id="cpu-0", kind="cuda"),))
    with pytest.raises(InvalidInput, match="the plan needs 1 CUDA devices, but CUDA_VISIBLE_DEVICES is ''"):
        told_by(tmp_path, msgspec.structs.replace(little_plan(""), hardware=hardware))


def measured_on_cuda(folder: Path, text: str) -> Any:
    path = write_project(folder)
    path.write_text(f'{text}device_kind = "cuda"\n')
    return profile_project(path, progress=lambda what, share: None)


def test_memory_that_cannot_be_seen_on_a_device_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(GearshiftError, match=r"memory that model 'small' takes on device kind 'cuda' cannot be .*mib"):
        measured_on_cuda(tmp_path, PROJECT)


def test_given_memory_is_taken(tmp_path: Path) -> None:
    text = PROJECT.replace("[models.large]", "memory_mib = 5\n[models.large]")
    curves = measured_on_cuda(tmp_path, text).curves
    assert [(curve.device_kind, curve.memory_bytes >> 20) for curve in curves] == [("cuda", 5), ("cuda", 7)]
