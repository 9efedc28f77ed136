"""Explain the difference between measured and predicted latency by simulating the known causes."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.profiles.run_times import Exits
from gearshift.result import LatencySummary, latency_summary
from gearshift.simulator.simulate import Prepared, Simulation


class LatencySplit(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds at p50, p95 and p99 (3,) from the predicted to the measured latency, step by step.

    `predicted` is for the trace itself; `generator` is the effect of the actual instants of
    sending; `run_times` that of `ratios`, the models' run times while serving over the profiled
    ones; `rest` is unexplained. They add up to `measured`. A model without a ratio is taken to run
    as profiled.
    """

    predicted: tuple[float, float, float]
    generator: tuple[float, float, float]
    run_times: tuple[float, float, float]
    rest: tuple[float, float, float]
    measured: tuple[float, float, float]
    ratios: dict[str, float]


Ran = tuple[int, int, float]
"""Batches and samples of a model, and the seconds that its batches held their devices."""


def run_time_ratios(simulation: Simulation, run_ns: NDArray[np.int64], ran: Mapping[str, Ran]) -> dict[str, float]:
    """Measured over profiled run times, of each model that ran here and in the simulation.

    `run_ns` (replicas, sizes) are the profiled times. Only sums are known of the measured batches,
    so they are compared with batches of the mean size, corrected by the ratio between the
    simulated batches, whose sizes are known, and batches of their mean size. Batches of another
    size than simulated therefore do not count as a change of run times.
    """
    ratios, sizes = {}, np.arange(run_ns.shape[1])
    for number, model in enumerate(simulation.tables.models):
        of_model = np.asarray(simulation.tables.replica_model) == number
        batches, times_ns = simulation.batches[of_model][:, : len(sizes)], run_ns[of_model]
        count, samples = int(batches.sum()), int((batches @ sizes).sum())
        measured_count, measured_samples, measured_s = ran.get(model, (0, 0, 0.0))
        if not count or not measured_count or not measured_s:
            continue
        mean_ns = batches.sum(axis=1) @ times_ns / count
        beside_mean = float((batches * times_ns).sum()) / (count * _at(mean_ns, samples / count))
        profiled_ns = beside_mean * measured_count * _at(mean_ns, measured_samples / measured_count)
        ratios[model] = measured_s * NS_PER_S / profiled_ns
    return ratios


def _at(times_ns: NDArray[np.float64], size: float) -> float:
    return float(np.interp(size, np.arange(1, len(times_ns)), times_ns[1:]))


def as_ran(prepared: Prepared, ratios: Mapping[str, float]) -> Prepared:
    models = prepared.tables.models
    of_replicas = np.array([ratios.get(models[number], 1.0) for number in prepared.tables.replica_model])

    def scaled(table_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        factors = of_replicas.reshape(-1, *(1,) * (table_ns.ndim - 1))
        return np.asarray(np.rint(table_ns * factors), dtype=np.int64)

    exits = prepared.exits
    return replace(
        prepared,
        run_ns=scaled(prepared.run_ns),
        exits=None if exits is None else Exits(scaled(exits.segment_ns), exits.exit_segment),
    )


def split_latency(
    as_planned: Simulation,
    as_sent: Simulation,
    as_run: Simulation,
    measured: LatencySummary,
    ratios: dict[str, float],
) -> LatencySplit:
    planned_s, sent_s, run_s = (_percentiles_s(_latency(one)) for one in (as_planned, as_sent, as_run))
    measured_s = _percentiles_s(measured)
    return LatencySplit(
        predicted=_three(planned_s),
        generator=_three(sent_s - planned_s),
        run_times=_three(run_s - sent_s),
        rest=_three(measured_s - run_s),
        measured=_three(measured_s),
        ratios=ratios,
    )


def _latency(simulation: Simulation) -> LatencySummary:
    latency_s = simulation.latency_s
    return latency_summary(latency_s[~np.isnan(latency_s)])


def _percentiles_s(latency: LatencySummary) -> NDArray[np.float64]:
    return np.array([latency.p50, latency.p95, latency.p99])


def _three(seconds: NDArray[np.float64]) -> tuple[float, float, float]:
    p50, p95, p99 = seconds.tolist()
    return p50, p95, p99
