"""Whether this machine has memory for another plan beside the one in force."""

from collections.abc import Callable
from pathlib import Path

from gearshift.errors import SwapFailed
from gearshift.hardware import is_cuda, is_remote
from gearshift.serving.task import ServingTask

MIB = 1 << 20
MACHINE, GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")

FreeBytes = Callable[[], int | None]


def free_bytes(machine: Path = MACHINE, group: Path = GROUP) -> int | None:
    """What the machine has left, and the control group (v2) that is this process's whole view; none if neither tells.

    Pages that the kernel can drop at once count as left.
    """
    left = []
    try:
        rows = dict(line.split(":", 1) for line in machine.read_text().splitlines())
        left.append(int(rows["MemAvailable"].split()[0]) * 1024)
    except (OSError, ValueError, KeyError, IndexError):
        pass
    try:
        most, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))  # or "max"
        rows = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        left.append(max(0, most - used + int(rows["inactive_file"])))
    except (OSError, ValueError, KeyError):
        pass
    return min(left, default=None)


def needed_bytes(task: ServingTask) -> int:
    """What the plan's models take of this machine's memory by their profile; 0 on other machines and emulated devices.

    The workers' own interpreters and libraries come on top.
    """
    if task.backend != "local":
        return 0
    kinds = {device.id: device.kind for device in task.plan.hardware.devices}
    needed = 0
    for replica in task.plan.placement.replicas:
        kind = kinds[replica.device_ids[0]]
        if not is_cuda(kind) and not is_remote(kind):
            curves = [c for c in task.profile.curves if (c.model, c.device_kind) == (replica.model, kind)]
            needed += max((curve.memory_bytes for curve in curves), default=0)
    return needed


def require_memory(task: ServingTask, free: FreeBytes) -> None:
    """Raise `SwapFailed` where the models of `task` take more memory than there is, before any of them is loaded."""
    needed, left = needed_bytes(task), free()
    if left is not None and needed > left:
        raise SwapFailed(
            f"its models take {needed / MIB:.0f} MiB beside those that serve, and {left / MIB:.0f} MiB are left; "
            "free memory, or start a server for the plan elsewhere"
        )
