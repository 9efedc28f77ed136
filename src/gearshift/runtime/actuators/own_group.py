"""A new control group below one of this process, to bound a process's processor time."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from gearshift.errors import InvalidInput
from gearshift.runtime.actuators.cgroup import CgroupActuator, cgroup_version, own_groups

MADE_BY = re.compile(r"gearshift-(?:doctor-)?(\d+)(?:-\d+)?")
"""The names of groups, with the process that made them."""
NO_GROUP = "this process is in no control group with processor time"


def make_group(name: str) -> Path:
    """Raises `InvalidInput` with the reason; also removes abandoned groups."""
    why = NO_GROUP
    for parent in own_groups():
        sweep(parent)
        group = parent / name
        try:
            group.mkdir()
        except OSError as error:
            why = f"no group can be made below {parent}: {error}"
            continue
        try:
            cgroup_version(group)
        except InvalidInput as error:
            why = f"no group can be made below {parent}: {error}"
            group.rmdir()
            continue
        return group
    raise InvalidInput(why, remedy="serve as a user who may make control groups, or with whole cores")


def move_into(group: Path, pid: int) -> None:
    (group / "cgroup.procs").write_text(str(pid))


def remove_group(group: Path) -> None:
    """Remove the group, if it exists; its processes move to the group above."""
    with contextlib.suppress(OSError):
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):  # it has ended by now
                move_into(group.parent, int(pid))
        group.rmdir()


def sweep(parent: Path) -> None:
    """Remove empty groups below `parent` whose makers have ended, as by SIGKILL."""
    for group in parent.glob("gearshift-*"):
        made_by = MADE_BY.fullmatch(group.name)
        if made_by is None or Path(f"/proc/{made_by[1]}").exists():
            continue
        with contextlib.suppress(OSError):  # in use after all, or another process has removed it
            if not (group / "cgroup.procs").read_text():
                group.rmdir()


@contextlib.contextmanager
def bounded(pid: int, cores: float) -> Iterator[None]:
    """Bound the processor time of a process in this context; raises `InvalidInput`."""
    group = make_group(f"gearshift-{os.getpid()}-{pid}")
    try:
        move_into(group, pid)
        problem = CgroupActuator(group).apply(cores).problem
        if problem:
            raise InvalidInput(problem)
        yield
    finally:
        remove_group(group)
