"""Search which devices hold which models, by a bound that takes microseconds.

Devices that are alike are interchangeable. Where models were profiled over 2, 4 or 8 devices, the
devices of a node form teams of that size; all devices of a team hold the same models. A *pattern*
is a set of models that a team can hold; only patterns to which nothing can be added are kept. A
*layout* gives the number of teams of each class that have each pattern.

The bound is the load that a layout could carry if every device could be kept busy. By the duality
of flows, a cascade keeps the busiest device as busy as

    max over subsets S of its models: work per request of S / devices that hold any of S

so a table (cascades, subsets) of work and one row of devices per layout give all cascades at once.
On devices of several kinds, work is counted at the fastest and devices by their relative speed.
Work is taken at the largest batch that the latency objective allows.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gearshift.hardware import Device, Hardware
from gearshift.placement import Placement, Replica
from gearshift.planner.space.hosts import DEGREES, alike_devices, bytes_per_device, nowhere, replica_on, ways
from gearshift.profiles.profile import Profile, RunTimeCurve

FULLEST = 0.85
"""Highest utilisation of a device in the bound; queues grow long before it reaches 1."""
BATCH_SHARE = 0.5
"""Share of the latency objective that one batch may take, in the bound."""
MOST_PATTERNS = 2000


class Candidate(Protocol):
    """A cascade, or one for each of several operators; `reach` is the share of requests that visit a model."""

    @property
    def models(self) -> tuple[str, ...]: ...
    @property
    def reach(self) -> tuple[float, ...]: ...
    @property
    def accuracy(self) -> float: ...
    @property
    def work_s(self) -> float: ...


LatencyLimit = float | Mapping[str, float]
"""The latency objective in seconds, or that of each model's operator."""

Pattern = tuple[tuple[str, int], ...]
Counts = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class TeamClass:
    """Teams of interchangeable devices, and the patterns that they can hold."""

    teams: tuple[tuple[Device, ...], ...]
    patterns: tuple[Pattern, ...]

    @property
    def size(self) -> int:
        return len(self.teams[0])


class PlacementSearch:
    """All layouts of a profile's models on hardware; raises `InvalidInput` when no model fits."""

    def __init__(self, profile: Profile, hardware: Hardware) -> None:
        self.profile, self.hardware = profile, hardware
        self.classes = [TeamClass(teams, self._patterns(teams[0])) for teams in _teams(profile, hardware)]
        self.classes = [c for c in self.classes if c.patterns != ((),)]
        if not self.classes:
            raise nowhere(profile, hardware)

    def _patterns(self, team: Sequence[Device]) -> tuple[Pattern, ...]:
        device, found = team[0], self.ways(team[0])
        options = [
            [(model, None)] + [(model, c) for c in found if c.model == model and c.tensor_parallel <= len(team)]
            for model in self.profile.models
        ]
        held: list[Pattern] = []
        whole = [each[1] for each in options if len(each) == 2]
        if len(whole) == len(options) and sum(bytes_per_device(c) for _, c in whole if c) <= device.memory_bytes:
            return (tuple((model, c.tensor_parallel) for model, c in whole if c),)
        for choice in product(*options):
            used = sum(bytes_per_device(c) for _, c in choice if c is not None)
            if used <= device.memory_bytes:
                held.append(tuple((model, c.tensor_parallel) for model, c in choice if c is not None))
                if len(held) > MOST_PATTERNS * 10:
                    break
        maximal = [p for p in held if not any(set(p) < set(other) for other in held)]
        return tuple(sorted(maximal, key=lambda p: (-len(p), p))[:MOST_PATTERNS])

    def ways(self, device: Device) -> list[RunTimeCurve]:
        return ways(self.profile, kind=device.kind, cores=device.cores)

    def placement(self, layout: Counts) -> Placement:
        replicas: list[Replica] = []
        for class_, counts in zip(self.classes, layout, strict=True):
            teams = iter(class_.teams)
            for pattern, count in zip(class_.patterns, counts, strict=True):
                for team in islice(teams, count):
                    curves = {(c.model, c.tensor_parallel): c for c in self.ways(team[0])}
                    replicas += [
                        replica_on(curves[model, degree], team[begin : begin + degree])
                        for model, degree in pattern
                        for begin in range(0, len(team), degree)
                    ]
        return Placement(replicas=tuple(replicas))

    def best(
        self,
        candidates: Sequence[Candidate],
        loads_qps: NDArray[np.float64],
        weights: NDArray[np.float64],
        *,
        latency_s: LatencyLimit = math.inf,
        most: int = 1,
        start: Sequence[Counts] = (),
    ) -> list[Counts]:
        """Up to `most` layouts with the greatest weighted accuracy in the bound, best first.

        From an even mix, from single patterns and from `start`, one team at a time changes its
        pattern as long as that helps. `loads_qps` and `weights` are (ranges,).
        """
        found = self.climbed(candidates, loads_qps, weights, latency_s=latency_s, start=start)
        return sorted(found, key=lambda c: (found[c], c), reverse=True)[:most]

    def climbed(
        self,
        candidates: Sequence[Candidate],
        loads_qps: NDArray[np.float64],
        weights: NDArray[np.float64],
        *,
        latency_s: LatencyLimit = math.inf,
        start: Sequence[Counts] = (),
    ) -> dict[Counts, tuple[float, float]]:
        """The layouts seen on the way, with their weighted accuracies in the bound and their capacities."""
        bound = Bound(self, candidates, loads_qps, weights, latency_s)
        found: dict[Counts, tuple[float, float]] = {}
        for layout in [*start, *self._starts()]:
            self._climb(layout, bound, found)
        return found

    def _starts(self) -> Iterator[Counts]:
        yield tuple(_spread(len(c.teams), len(c.patterns)) for c in self.classes)
        most = max(len(c.patterns) for c in self.classes)
        for p in range(min(most, 12)):
            yield tuple(
                tuple(len(c.teams) * (i == p % len(c.patterns)) for i in range(len(c.patterns))) for c in self.classes
            )

    def _climb(self, layout: Counts, bound: "Bound", found: dict[Counts, tuple[float, float]]) -> None:
        if layout not in found:
            found[layout] = bound.score(layout)
        while True:
            neighbours = [n for n in self._neighbours(layout) if n not in found]
            for n in neighbours:
                found[n] = bound.score(n)
            best = max(neighbours, key=lambda n: (found[n], n), default=layout)
            if found[best] <= found[layout]:
                return
            layout = best

    def _neighbours(self, layout: Counts) -> Iterator[Counts]:
        for c, counts in enumerate(layout):
            for i, j in product(range(len(counts)), repeat=2):
                if i != j and counts[i] > 0:
                    moved = max(1, counts[i] // 4) if len(self.classes[c].teams) > 32 else 1
                    changed = list(counts)
                    changed[i] -= moved
                    changed[j] += moved
                    yield (*layout[:c], tuple(changed), *layout[c + 1 :])


class Bound:
    """Scores of layouts: weighted accuracy in the bound, then the cheapest cascade's capacity."""

    def __init__(
        self,
        search: PlacementSearch,
        candidates: Sequence[Candidate],
        loads_qps: NDArray[np.float64],
        weights: NDArray[np.float64],
        latency_s: LatencyLimit,
    ) -> None:
        models = search.profile.models
        least_s = dict.fromkeys(models, math.inf)
        self._parts = []
        for class_ in search.classes:
            rows = []
            for pattern in class_.patterns:
                work = {m: _team_work_s(search, class_, m, k, latency_s) for m, k in pattern}
                rows.append(work)
                for m, s in work.items():
                    least_s[m] = min(least_s[m], s)
            self._parts.append(rows)
        chains = {frozenset(c.models) for c in candidates}
        self._subsets = sorted({tuple(sorted(s)) for chain in chains for s in _subsets(chain)})
        index = {subset: i for i, subset in enumerate(self._subsets)}
        self._order = order = sorted(range(len(candidates)), key=lambda i: -candidates[i].accuracy)
        self._accuracy = np.array([candidates[i].accuracy for i in order])
        self._work = np.zeros((len(candidates), len(self._subsets)))
        for row, i in enumerate(order):
            reach = dict(zip(candidates[i].models, candidates[i].reach, strict=True))
            for subset in _subsets(frozenset(candidates[i].models)):
                self._work[row, index[subset]] = sum(reach[m] * least_s[m] for m in subset)
        self._hosts = [
            np.array(
                [
                    [max((least_s[m] / row[m] for m in subset if m in row), default=0.0) for subset in self._subsets]
                    for row in rows
                ]
            )
            for rows in self._parts
        ]
        self._cheapest = int(np.argmin([candidates[i].work_s for i in order]))
        self._loads, self._weights = loads_qps, weights

    def score(self, layout: Counts) -> tuple[float, float]:
        capacity = self._capacity(layout)
        carried = capacity[None, :] >= self._loads[:, None]
        first = np.where(carried.any(axis=1), self._accuracy[carried.argmax(axis=1)], 0.0)
        return float(self._weights @ first), float(capacity[self._cheapest])

    def carried(self, layout: Counts, load_qps: float) -> list[int]:
        """Candidates on a front, by falling accuracy, from the first whose capacity is at least the load."""
        capacity = self._capacity(layout)
        first = next((row for row, qps in enumerate(capacity) if qps >= load_qps), self._cheapest)
        return [self._order[row] for row in range(first, len(capacity)) if capacity[row] > 0]

    def _capacity(self, layout: Counts) -> NDArray[np.float64]:
        """The capacities (candidates,) in requests/s, from the most accurate down."""
        teams = sum((np.asarray(c) @ hosts for c, hosts in zip(layout, self._hosts, strict=True)), np.zeros(1))
        with np.errstate(divide="ignore", invalid="ignore"):
            busy = np.where(self._work > 0, self._work / teams, 0.0).max(axis=1)
            capacity: NDArray[np.float64] = np.where(busy > 0, FULLEST / busy, 0.0)
        return capacity


def _team_work_s(search: PlacementSearch, class_: TeamClass, model: str, degree: int, limit: LatencyLimit) -> float:
    latency_s = limit if isinstance(limit, (float, int)) else limit[model]
    found = search.ways(class_.teams[0][0])
    curve = next(c for c in found if (c.model, c.tensor_parallel) == (model, degree))
    table = curve.table_ns()[1:] / 1e9
    allowed = table[: max(1, int(np.searchsorted(table, BATCH_SHARE * latency_s, side="right")))]
    return float((allowed / np.arange(1, len(allowed) + 1)).min()) * degree / class_.size


def _subsets(models: frozenset[str]) -> Iterator[tuple[str, ...]]:
    for length in range(1, len(models) + 1):
        yield from combinations(sorted(models), length)


def _spread(total: int, places: int) -> tuple[int, ...]:
    return tuple(total // places + (i < total % places) for i in range(places))


def _teams(profile: Profile, hardware: Hardware) -> list[tuple[tuple[Device, ...], ...]]:
    widest: Mapping[str, int] = {
        d.kind: max([c.tensor_parallel for c in profile.curves if c.device_kind == d.kind], default=1)
        for d in hardware.devices
    }
    classes: dict[tuple[object, ...], list[tuple[Device, ...]]] = {}
    for devices in alike_devices(hardware):
        first, begin = devices[0], 0
        while begin < len(devices):
            size = max(k for k in DEGREES if k <= min(max(1, widest[first.kind]), len(devices) - begin))
            alike = first.kind, first.cores, first.memory_bytes, size
            classes.setdefault(alike, []).append(tuple(devices[begin : begin + size]))
            begin += size
    return [tuple(teams) for teams in classes.values()]
