"""Planning time against the number of devices, from 16 to 1,024 alike, with load that grows alike.

One SLO plan each, placement search included, for five synthetic models of which a device holds three.  The slope is
that of a straight line through logarithms of devices and seconds.  One more row has devices of several kinds.
`--seconds 40` makes it 16 million requests on 1,024 devices.  `--lengths` plans for traces of 3,000 to 360,000 requests
on one device instead.
"""

import time
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_bar, print_table
from benchmarks.shared.worlds import GIB, devices, five_models
from gearshift.errors import Infeasible
from gearshift.hardware import Device, Hardware
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import Profile
from gearshift.traces.generate import diurnal

COUNTS = (16, 64, 256, 1024)
QUICK_COUNTS = (2, 4, 8)
QPS_EACH = 800.0
"""Requests/s per device in the busiest second."""
SECONDS = 10.0
LENGTHS_S = (6, 12, 24, 38, 42, 120, 720)
SLO_S = 0.05
BAR = 1.05
KINDS = {"gpu": (1.0, 3), "half": (2.0, 2), "double": (0.5, 4)}
"""By kind: how many times as slow as profiled, and how many models a device holds."""


@dataclass(frozen=True, slots=True)
class Row:
    devices: str
    requests: int
    seconds: float
    result: str


def several_kinds(profile: Profile) -> Profile:
    """The profile with run times on devices of all `KINDS`."""
    curves = [
        msgspec.structs.replace(
            c,
            device_kind=kind,
            median_s=tuple(slower * s for s in c.median_s),
            p95_s=tuple(slower * s for s in c.p95_s),
        )
        for c in profile.curves
        for kind, (slower, _) in KINDS.items()
    ]
    return replace(profile, curves=tuple(curves))


def mixed_devices(count: int) -> Hardware:
    """So many devices, of each kind as many as of the others."""
    kinds = list(KINDS)
    return Hardware(
        devices=tuple(
            Device(id=f"d{i}", kind=kinds[i % len(kinds)], memory_bytes=KINDS[kinds[i % len(kinds)]][1] * GIB)
            for i in range(count)
        )
    )


def planned(name: str, profile: Profile, hardware: Hardware, seconds: float = SECONDS) -> Row:
    """One plan, timed."""
    count = len(hardware.devices)
    trace = diurnal(0.2 * QPS_EACH * count, QPS_EACH * count, seconds, seed=0)
    request = PlanRequest(profile=profile, trace=trace, hardware=hardware, objective=Objective(latency_s=SLO_S))
    began = time.perf_counter()
    try:
        result = planners.plan("optimal", request).predictions[profile.operator]
        said = f"accuracy {result.accuracy:.4f}, p95 {result.latency_s.p95 * 1e3:.1f} ms, {result.share_late:.2%} late"
    except Infeasible as error:
        said = f"infeasible: {error}"
    return Row(name, len(trace), time.perf_counter() - began, said)


def slope(counts: list[int], seconds: list[float]) -> float:
    """Of the least-squares line through the logarithms."""
    return float(np.polyfit(np.log(counts), np.log(seconds), 1)[0])


def show(rows: list[Row]) -> None:
    """A row per plan."""
    print_table(
        ("devices", "requests", "planning, s", "plan, on part B"),
        [(r.devices, r.requests, f"{r.seconds:.1f}", r.result) for r in rows],
    )


def main() -> None:
    parser = parser_of(__doc__, quick="2 to 8 devices")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long the traces are")
    parser.add_argument("--lengths", action="store_true", help="traces of several lengths on one device")
    asked = parser.parse_args()
    counts = QUICK_COUNTS if asked.quick else COUNTS
    profile = five_models()
    planned("compiles", profile, devices(1))
    print(describe())
    if asked.lengths:
        show([planned("1", profile, devices(1), seconds) for seconds in LENGTHS_S])
        return
    rows = [planned(f"{n} alike", profile, devices(n), asked.seconds) for n in counts]
    mixed = planned(f"{counts[1]} of {len(KINDS)} kinds", several_kinds(profile), mixed_devices(counts[1]))
    show([*rows, mixed])
    found = slope(list(counts), [r.seconds for r in rows])
    print_bar(found <= BAR, f"log-log slope of planning time at most {BAR} (it is {found:.2f})")


if __name__ == "__main__":
    main()
