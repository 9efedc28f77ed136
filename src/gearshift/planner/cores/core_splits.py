"""Splits of cores among a cascade's models, to find the fewest on which it holds a load."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import require
from gearshift.gear import ReplicaSettings
from gearshift.hardware import Device, Hardware, is_cuda, is_remote
from gearshift.objective import Objective
from gearshift.placement import Placement
from gearshift.planner.evaluate.cells import Cell
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.hosts import replica_on
from gearshift.profiles.profile import Profile, RunTimeCurve

Split = tuple[int, ...]
"""Cores of each model of a cascade, in its order."""


def on_every_count(profile: Profile, cores: int) -> Profile:
    """The profile with run times on 1, 2, ... `cores` cores, measured or modelled.

    Counts end at the highest that was measured for each model. Raises `InvalidInput` for devices
    other than processors, and for a model that was not profiled on one core.
    """
    kind = profile.curves[0].device_kind
    require(
        not is_cuda(kind) and not is_remote(kind),
        f"the profile is of device kind {kind!r}, and cores are split among models on processors",
        remedy="plan for --devices",
    )
    curves = [c for model in profile.models for c in _curves(profile, model, kind, cores)]
    return replace(profile, curves=tuple(curves), performance=())


def _curves(profile: Profile, model: str, kind: str, cores: int) -> list[RunTimeCurve]:
    known = profile.performance_model(model, device_kind=kind)
    require(
        known.cores[0] == 1,
        f"model {model!r} was profiled on {known.cores[0]} cores and more",
        remedy="profile it with `--cores 1,2,4`: beside others it may get a single core",
    )
    measured = {c.cores: c for c in profile.curves if (c.model, c.device_kind, c.tensor_parallel) == (model, kind, 1)}
    sizes = np.array(known.batch_sizes, dtype=np.float64)
    found = []
    for count in range(1, min(cores, known.cores[-1]) + 1):
        seconds = tuple(known.at(sizes, np.full(len(sizes), float(count))).tolist())
        filled = RunTimeCurve(
            model=model,
            device_kind=kind,
            cores=count,
            batch_sizes=known.batch_sizes,
            median_s=seconds,
            p95_s=seconds,
            memory_bytes=measured[1].memory_bytes,
            overhead_per_batch_s=measured[1].overhead_per_batch_s,
            overhead_per_request_s=measured[1].overhead_per_request_s,
        )
        found.append(measured.get(count, filled))
    return found


@dataclass(slots=True)
class CoreSplits:
    """Simulate cascades at steady loads on splits of up to `most` cores.

    `profile` is a result of `on_every_count`.
    """

    profile: Profile
    objective: Objective
    most: int
    seed: int
    _curves: dict[str, list[RunTimeCurve]] = field(init=False, repr=False)
    _request_s: dict[str, NDArray[np.float64]] = field(init=False, repr=False)
    _run_s: dict[str, NDArray[np.float64]] = field(init=False, repr=False)
    _steady: dict[tuple[tuple[str, int], ...], SteadyState] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._curves = {m: [c for c in self.profile.curves if c.model == m] for m in self.profile.models}
        tables_s = {m: [c.table_ns()[1:] / NS_PER_S for c in curves] for m, curves in self._curves.items()}
        self._request_s = {m: np.array([least_request_s(t) for t in rows]) for m, rows in tables_s.items()}
        self._run_s = {m: np.array([t.min() for t in rows]) for m, rows in tables_s.items()}

    def promising(self, candidate: CandidateCascade, load_qps: float) -> NDArray[np.int16]:
        """Splits (n, models) that may hold, by rising cores, then by how busy they are.

        No model may have more work than it can do at its most efficient batch, and where more than
        a share `1 - percentile` of requests reaches a model, its run and those before must be in
        time.
        """
        models, stages = candidate.cascade.models, len(candidate.cascade.models)
        limit_s = np.inf if self.objective.latency_s is None else self.objective.latency_s - self.profile.front_end_s
        busy, alone_s, cores, may = np.zeros(1), np.zeros(1), np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.bool_)
        for k, (model, reach) in enumerate(zip(models, candidate.reach, strict=True)):
            along = tuple(-1 if axis == k else 1 for axis in range(stages))
            busy = np.maximum(busy, reach * load_qps * self._request_s[model].reshape(along))
            alone_s = alone_s + self._run_s[model].reshape(along)
            cores = cores + np.arange(1, len(self._run_s[model]) + 1).reshape(along)
            if reach > 1 - self.objective.percentile:
                may = may & (alone_s <= limit_s)
        places = np.argwhere(may & (busy <= 1) & (cores <= self.most))
        order = np.lexsort((busy[tuple(places.T)], cores[tuple(places.T)]))
        splits: NDArray[np.int16] = (places[order] + 1).astype(np.int16)
        return splits

    def even(self, candidate: CandidateCascade) -> Split:
        models = candidate.cascade.models
        return tuple(max(1, min(self.most // len(models), len(self._curves[model]))) for model in models)

    def bottleneck(self, candidate: CandidateCascade) -> str:
        work_s = {
            m: r * self._request_s[m].min() for m, r in zip(candidate.cascade.models, candidate.reach, strict=True)
        }
        return max(work_s, key=lambda model: work_s[model])

    def holds(self, candidate: CandidateCascade, split: Split, load_qps: float) -> bool:
        return self._on(candidate, split).holds(candidate.cascade, load_qps)

    def chosen(self, candidate: CandidateCascade, split: Split, load_qps: float) -> tuple[Cell, int]:
        steady = self._on(candidate, split)
        batching = steady.batching(candidate.cascade, load_qps)
        return steady.cell(candidate.cascade, load_qps, batching), batching.largest

    def settings(
        self, candidate: CandidateCascade, split: Split, largest_batch_size: int, placement: Placement
    ) -> tuple[ReplicaSettings, ...]:
        """Settings of the replicas of `placement`; those without a load share have one core."""
        cores = dict(zip(candidate.cascade.models, split, strict=True))
        return tuple(
            ReplicaSettings(
                replica=replica.id,
                load_share=float(replica.model in cores),
                largest_batch_size=min(largest_batch_size, self._curves[replica.model][0].largest_batch_size),
                cores=cores.get(replica.model, 1),
            )
            for replica in placement.replicas
        )

    def _on(self, candidate: CandidateCascade, split: Split) -> SteadyState:
        cores = dict(zip(candidate.cascade.models, split, strict=True))
        key = tuple(sorted(cores.items()))
        if key not in self._steady:
            hardware, placement = one_of_each(self.profile, cores)
            self._steady[key] = SteadyState(
                self.profile, hardware, placement, self.objective, seed=self.seed, waits=False
            )
        return self._steady[key]


def least_request_s(table_s: NDArray[np.float64]) -> float:
    """Seconds per request at the most efficient batch, from seconds (sizes,) per batch."""
    return float((table_s / np.arange(1, len(table_s) + 1)).min())


def one_of_each(
    profile: Profile, cores: Mapping[str, int], *, pool_cores: int | None = None
) -> tuple[Hardware, Placement]:
    devices, replicas = [], []
    for i, (model, count) in enumerate(cores.items()):
        curve = next(c for c in profile.curves if (c.model, c.cores, c.tensor_parallel) == (model, count, 1))
        device = Device(
            id=f"{curve.device_kind}-{i}",
            kind=curve.device_kind,
            cores=count,
            memory_bytes=max(1 << 30, curve.memory_bytes),
        )
        devices.append(device)
        replicas.append(replica_on(curve, [device]))
    return Hardware(devices=tuple(devices), pool_cores=pool_cores), Placement(replicas=tuple(replicas))
