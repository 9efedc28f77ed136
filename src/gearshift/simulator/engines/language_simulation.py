"""The outcome of a simulation of language models in plain data, and its figures."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.decisions import LogRow
from gearshift.language_workload import LanguageWorkload
from gearshift.objective import Objective
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.result import ServingResult, summarise_streams


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LanguageSimulation:
    """The simulated outcome of each request (n,) and of the run.

    `model` answered, in gear `gear`; its answer has `output_tokens`, of which the client sees the
    first at `answered_ns`, when `decided_at_token` were there, and the last at `finished_ns`.
    `discarded_tokens` (n, models) were made by models that did not answer; `preempted` counts how
    often an engine took a request's memory. `busy_ns` is (groups of devices,); `steps` (replicas,)
    counts steps; `shifts` (k, 2) are nanoseconds and the gear from then on; `log` holds decisions,
    when asked for. `most_waiting` requests waited at once for an engine with room.
    """

    tables: EngineTables
    workload: LanguageWorkload
    model: NDArray[np.int8]
    gear: NDArray[np.int16]
    answered_ns: NDArray[np.int64]
    finished_ns: NDArray[np.int64]
    output_tokens: NDArray[np.int32]
    decided_at_token: NDArray[np.int32]
    discarded_tokens: NDArray[np.int32]
    preempted: NDArray[np.int32]
    busy_ns: NDArray[np.int64]
    steps: NDArray[np.int64]
    shifts: NDArray[np.int64]
    log: list[LogRow]
    most_waiting: int

    @property
    def ttft_ns(self) -> NDArray[np.int64]:
        """From arrival to the first token that the client sees."""
        return self.answered_ns - self.workload.arrivals_ns + self.tables.overhead_ns

    @property
    def total_ns(self) -> NDArray[np.int64]:
        """From arrival to the last token."""
        return self.finished_ns - self.workload.arrivals_ns + self.tables.overhead_ns

    @property
    def per_token_s(self) -> NDArray[np.float64]:
        """The mean time between tokens; NaN for answers of one."""
        pairs = np.where(self.output_tokens > 1, self.output_tokens - 1, np.nan)
        return np.asarray((self.finished_ns - self.answered_ns) / NS_PER_S / pairs)

    @property
    def duration_s(self) -> float:
        return max(self.workload.duration_s, float(self.finished_ns.max()) / NS_PER_S)

    def quality(self, profile: LanguageProfile) -> NDArray[np.float64]:
        return profile.answers.quality[self.model, self.workload.record]

    def result(self, profile: LanguageProfile, objective: Objective, *, from_s: float = 0.0) -> ServingResult:
        """The figures of requests that arrive at `from_s` or later; utilisation is that of the whole run.

        Raises `InvalidInput` where none do.
        """
        counted = self.workload.arrivals_ns >= from_s * NS_PER_S
        answers = np.bincount(self.model[counted], minlength=len(self.tables.models))
        return summarise_streams(
            ttft_s=self.ttft_ns[counted] / NS_PER_S,
            per_token_s=self.per_token_s[counted],
            total_s=self.total_ns[counted] / NS_PER_S,
            metric="total" if objective.metric is UNSET else objective.metric,
            output_tokens=int(self.output_tokens[counted].sum()),
            discarded_tokens=_by_model(self.tables.models, self.discarded_tokens[counted].sum(axis=0)),
            answered_by=_by_model(self.tables.models, answers / max(1, answers.sum())),
            quality=self.quality(profile)[counted],
            requests=int(np.count_nonzero(counted)),
            refused=0,
            latency_objective_s=objective.latency_s,
            duration_s=self.workload.duration_s - from_s,
            devices=len(self.tables.device_ids),
            utilisation=self._utilisation(),
            most_waiting=self.most_waiting,
            independent_samples=len(np.unique(self.workload.record[counted])),
        )

    def _utilisation(self) -> dict[str, float]:
        busy = dict.fromkeys(self.tables.device_ids, 0.0)
        for devices, busy_ns in zip(self.tables.device_groups, self.busy_ns, strict=True):
            busy |= dict.fromkeys(devices, float(busy_ns) / NS_PER_S / self.duration_s)
        return busy


def _by_model(models: tuple[str, ...], each: NDArray[Any]) -> dict[str, Any]:
    """The part above 0."""
    return {model: value for model, value in zip(models, each.tolist(), strict=True) if value > 0}
