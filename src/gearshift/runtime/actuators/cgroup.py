"""The share of processor time that the kernel gives a control group, version 1 or 2."""

import contextlib
import os
import time
from collections.abc import Sequence
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
