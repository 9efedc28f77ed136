"""The processor time of control groups, version 1 or 2: of this process's, and of new ones below."""

import contextlib
import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from gearshift.errors import InvalidInput, require
from gearshift.runtime.actuators.base import Effect, Now

PERIOD_US = 5_000
"""Short, so that a worker that has used up its share waits only for milliseconds.

With half a core, the p99 rose from 4 ms to 56 ms at the usual 100 ms, and to 15 ms at 10 ms.
"""
LEAST_QUOTA_US = 1_000
UNLIMITED = float("inf")


class CgroupActuator:
    """Bounds a group's processor time: `cpu.max` (version 2) or `cpu.cfs_quota_us` (version 1).

    It asks for `most` cores at most. Raises `InvalidInput` if `folder` is no such group.
    """

    name = "cgroup"

    def __init__(
        self, folder: Path, *, most: float = UNLIMITED, period_us: int = PERIOD_US, now: Now = time.monotonic_ns
    ) -> None:
        require(5_000 <= period_us <= 10_000, f"period_us is {period_us}", remedy="give 5000 to 10000")
        self._folder, self._most, self._period_us, self._now = folder, most, period_us, now
        self.version = cgroup_version(folder)
        self._known = self._cores()

    def apply(self, cores: float) -> Effect:
        asked_ns = self._now()
        allowed = min(cores, self._most)
        problem = "" if allowed == cores else f"{cores:g} cores were asked for, there are {self._most:g}"
        try:
            self._write(max(LEAST_QUOTA_US, round(allowed * self._period_us)))
            self._known = self._cores()
        except OSError as error:
            problem = f"the quota in {self._folder} cannot be changed ({error.strerror})"
            self.in_force()
        return Effect(cores=self._known, asked_ns=asked_ns, effective_ns=self._now(), problem=problem)

    def _write(self, quota_us: int) -> None:
        if self.version == 2:
            _write_over(self._folder / "cpu.max", f"{quota_us} {self._period_us}")
            return
        period = self._folder / "cpu.cfs_period_us"
        if int(period.read_text()) != self._period_us:
            _write_over(period, str(self._period_us))
        _write_over(self._folder / "cpu.cfs_quota_us", str(quota_us))

    def _cores(self) -> float:
        return cores_of_group(self._folder, self.version)

    def in_force(self) -> float:
        with contextlib.suppress(OSError, ValueError):
            self._known = self._cores()
        return self._known


def cgroup_version(folder: Path) -> int:
    """1 or 2; raises `InvalidInput` if the folder bounds no processor time."""
    if (folder / "cpu.max").exists():
        return 2
    if (folder / "cpu.cfs_quota_us").exists():
        return 1
    raise InvalidInput(
        "there is neither cpu.max nor cpu.cfs_quota_us",
        where=str(folder),
        remedy="name a control group below the root that has the cpu controller",
    )


def cores_of_group(folder: Path, version: int) -> float:
    """The cores that the group may use; infinite without a bound. Raises `OSError`."""
    if version == 2:
        quota, period = (folder / "cpu.max").read_text().split()
        return UNLIMITED if quota == "max" else int(quota) / int(period)
    quota_us = int((folder / "cpu.cfs_quota_us").read_text())
    return UNLIMITED if quota_us < 0 else quota_us / int((folder / "cpu.cfs_period_us").read_text())


def own_groups(lines: Sequence[str] | None = None, root: Path = Path("/sys/fs/cgroup")) -> list[Path]:
    """Existing folders of this process's groups with processor time, version 2 first."""
    if lines is None:
        try:
            lines = Path("/proc/self/cgroup").read_text().splitlines()
        except OSError:
            return []
    found: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        inside = path.lstrip("/")
        if not controllers:
            found[:0] = [root / inside, root / "unified" / inside]
        elif "cpu" in controllers.split(","):
            found += [root / controllers / inside, root / "cpu" / inside]
    return [folder for folder in dict.fromkeys(found) if (folder / "cgroup.procs").exists()]


def _write_over(file: Path, text: str) -> None:
    """Write into a file that the kernel made, without creating a missing one."""
    descriptor = os.open(file, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


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


def quota_cores(groups: Sequence[Path] | None = None) -> float:
    """The least quota, in cores, of this process's groups and all above; infinite without one."""
    least = math.inf
    for group in own_groups() if groups is None else groups:
        for folder in (group, *group.parents):
            with suppress(InvalidInput, OSError, ValueError):
                least = min(least, cores_of_group(folder, cgroup_version(folder)))
    return least


def quota_warning(cores: float, what: str, *, quota: float) -> str:
    if cores <= quota:
        return ""
    return (
        f"{what} takes {cores:g} processors with the router's, and a control group holds this process to {quota:g}: "
        "it is stopped for parts of each period, and latency will exceed what is predicted; raise the quota, or use "
        "fewer cores"
    )
