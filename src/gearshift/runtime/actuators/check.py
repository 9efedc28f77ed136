"""Tries out which actuators work on this machine, and how fast."""

import importlib.util
import os
from collections.abc import Callable

import msgspec

from gearshift.errors import InvalidInput
from gearshift.runtime.actuators.affinity import AffinityActuator
from gearshift.runtime.actuators.base import Actuator
from gearshift.runtime.actuators.cgroup import CgroupActuator, make_group, remove_group
from gearshift.runtime.actuators.kubernetes import ACCOUNT, in_a_pod
from gearshift.runtime.actuators.threads import ThreadsActuator, torch_threads
from gearshift.support.processors import pin, processors_of, usable_processors

TRIES = 3


class ActuatorCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an actuator works here; the longest time of a change, or why it does not work."""

    works: bool
    took_s: float | None = None
    why: str = ""


def check_actuators() -> dict[str, ActuatorCheck]:
    """Try each on this process or on a temporary control group, and restore everything."""
    return {"threads": _threads(), "affinity": _affinity(), "cgroup": _cgroup(), "kubernetes": _kubernetes()}


def _tried(actuator: Actuator, cores: tuple[float, ...]) -> ActuatorCheck:
    effects = [actuator.apply(count) for _ in range(TRIES) for count in cores]
    problem = next((effect.problem for effect in effects if effect.problem), "")
    if problem:
        return ActuatorCheck(works=False, why=problem)
    return ActuatorCheck(works=True, took_s=max(effect.took_s for effect in effects))


def _counts() -> tuple[int, ...]:
    there = usable_processors()
    return (1, there) if there > 1 else (1,)


def _threads() -> ActuatorCheck:
    if importlib.util.find_spec("torch") is None:
        return ActuatorCheck(
            works=False, why="PyTorch is not installed; sessions of ONNX Runtime are made once per core count"
        )
    set_threads = torch_threads()
    import torch

    before = torch.get_num_threads()
    try:
        return _tried(ThreadsActuator(set_threads), _counts())
    finally:
        set_threads(before)


def _affinity() -> ActuatorCheck:
    before = processors_of()
    try:
        return _tried(AffinityActuator(os.getpid(), sorted(before)), _counts())
    finally:
        pin(before)


def _cgroup() -> ActuatorCheck:
    try:
        group = make_group(f"gearshift-doctor-{os.getpid()}")
    except InvalidInput as error:
        return ActuatorCheck(works=False, why=error.what)
    try:
        return _tried(CgroupActuator(group), (0.5, 1.0))
    finally:
        remove_group(group)


def _kubernetes(inside: Callable[[], bool] = in_a_pod) -> ActuatorCheck:
    if not inside():
        return ActuatorCheck(works=False, why=f"this process is in no pod with a service account ({ACCOUNT})")
    return ActuatorCheck(works=True, why="in a pod; whether it may resize itself is seen at the first change")
