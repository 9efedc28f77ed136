import numpy as np
import pytest

from benchmarks.papers.scalers import PaperScaler, StaticScaler
from gearshift.simulator.compared.scalers import ExactScaler, Fa2Scaler, ReplicasScaler, VpaScaler
from gearshift.simulator.compared.vertical import REFUSED, Scaler, Seen, Setting, VerticalRun, simulate_vertical
from gearshift.workload import Workload

S = 1_000_000_000
MS = S // 1000
MOST, LARGEST = 4, 4
TABLE = np.array([[0] + [S] * 4] + [[0] + [100 * MS // c * (b + 1) // 2 for b in range(1, 5)] for c in range(1, 5)])
"""A batch of b on c cores takes 50 ms times (b + 1) / c."""
ONE = Setting(1, LARGEST)


def load(*requests: tuple[int, int], seconds: float = 4.0) -> Workload:
    arrivals, deadlines = (np.array(values, dtype=np.int64) for values in zip(*requests, strict=True))
    return Workload(
        arrivals_ns=arrivals, record=np.zeros(len(requests), dtype=np.int32), duration_s=seconds, deadline_ns=deadlines
    )


def served(workload: Workload, scaler: Scaler, first: Setting = ONE, **how: object) -> VerticalRun:
    return simulate_vertical(workload, TABLE.tolist(), scaler, first=first, **how)  # type: ignore[arg-type]


class Planned:
    """A scaler that asks for what the test wants at each second, and keeps what it saw."""

    def __init__(self, *settings: Setting, start_up_ns: int = 0) -> None:
        self.settings, self.start_up_ns = settings, start_up_ns
        self.seen: list[Seen] = []

    def setting(self, seen: Seen) -> Setting:
        self.seen.append(seen)
        return self.settings[min(len(self.seen), len(self.settings)) - 1]


def test_the_most_urgent_goes_first_and_batches_are_as_large_as_it_allows() -> None:
    run = served(load((0, S), (1, S), (2, 260 * MS), (3, S), (4, S)), StaticScaler())
    assert run.finished_ns.tolist() == [100 * MS, 250 * MS, 250 * MS, 400 * MS, 400 * MS]
    assert run.batches.tolist() == [0, 1, 2, 0, 0]
    assert not run.violations.any()


def test_who_cannot_make_it_is_refused_and_counts_as_a_violation() -> None:
    run = served(load((0, 99 * MS), (1, S)), StaticScaler())
    assert run.finished_ns.tolist() == [REFUSED, 100 * MS + 1]
    assert run.violations.tolist() == [True, False]


def test_new_cores_hold_for_batches_that_start_after_they_took_effect_and_are_charged_from_then() -> None:
    scaler = Planned(Setting(1, LARGEST), Setting(4, LARGEST))
    run = served(load((S - 50 * MS, 9 * S), (S, 9 * S), (2 * S, 9 * S)), scaler, effect_s=0.02)
    assert run.finished_ns.tolist() == [S + 50 * MS, S + 75 * MS, 2 * S + 25 * MS]
    assert run.cores.tolist() == [[0, 1], [S + 20 * MS, 4]]
    assert run.core_seconds == pytest.approx(1.02 * 1 + 2.98 * 4)


def test_a_worker_that_is_added_serves_after_its_cold_start_and_is_charged_at_once() -> None:
    scaler = Planned(Setting(1, 1), Setting(1, 1, 2), start_up_ns=2 * S)
    burst = [(S + S // 2, 9 * S)] * 4 + [(3 * S, 9 * S)] * 4
    run = served(load(*burst), scaler, Setting(1, 1))
    assert sorted(run.finished_ns[:4].tolist()) == [S + S // 2 + k * 100 * MS for k in range(1, 5)]
    assert sorted(run.finished_ns[4:].tolist()) == [3 * S + k * 100 * MS for k in (1, 1, 2, 2)]
    assert run.core_seconds == pytest.approx(1 + 3 * 2)


def test_a_worker_that_goes_finishes_its_batch() -> None:
    scaler = Planned(Setting(1, 1, 2), Setting(1, 1, 1))
    run = served(load((S - MS, 9 * S), (S - MS, 9 * S), (S, 9 * S)), scaler, Setting(1, 1, 2))
    assert run.finished_ns.tolist() == [S + 99 * MS, S + 99 * MS, S + 199 * MS]


def test_the_scaler_sees_who_waits_and_when_the_worker_is_free() -> None:
    scaler = Planned(Setting(1, LARGEST))
    served(load((S - MS, 9 * S), (S - MS // 2, 8 * S), (S - MS // 4, 7 * S)), scaler)
    seen = scaler.seen[1]
    assert (seen.now_ns, list(seen.waiting_ns), seen.free_ns) == (S, [7 * S, 8 * S], S + 99 * MS)
    assert len(seen.since(S - MS // 2)[0]) == 2
    assert len(scaler.seen[0].arrivals_ns) == 0


def steady(rate: int, left_ms: int, seconds: int) -> Workload:
    at = [i * S // rate for i in range(rate * seconds)]
    return load(*((t, t + left_ms * MS) for t in at), seconds=float(seconds))


def test_the_exact_scaler_goes_down_to_what_suffices_and_up_when_time_gets_short() -> None:
    slack, tight = steady(8, 900, 5), steady(8, 110, 5)
    assert tight.deadline_ns is not None
    assert slack.deadline_ns is not None
    both = load(
        *zip(slack.arrivals_ns, slack.deadline_ns, strict=True),
        *zip(tight.arrivals_ns + 5 * S, tight.deadline_ns + 5 * S, strict=True),
        seconds=10.0,
    )
    run = served(both, ExactScaler(TABLE), Setting(MOST, LARGEST))
    cores = {second: int(run.cores[run.cores[:, 0] <= second * S][-1, 1]) for second in range(10)}
    assert cores[4] == 1
    assert cores[8] >= 2
    assert not run.violations[:40].any()
    assert not run.violations[48:].any()


def test_the_printed_algorithm_has_one_core_for_an_empty_queue_whatever_the_rate() -> None:
    run = served(steady(20, 900, 5), PaperScaler(TABLE, slo_s=0.9), Setting(MOST, LARGEST))
    assert run.cores[1].tolist() == [0, 1]
    of_period = served(steady(20, 900, 5), PaperScaler(TABLE, slo_s=0.9, of_period=True), Setting(1, LARGEST))
    assert int(of_period.cores[-1, 1]) > 1


def test_horizontal_scaling_takes_as_many_workers_as_the_rate_needs_and_utilisation_scaling_follows_use() -> None:
    fa2 = Fa2Scaler(TABLE)
    run = served(steady(20, 900, 5), fa2, fa2.most)
    assert int(run.cores[-1, 1]) == 2
    run = served(steady(4, 900, 5), VpaScaler(TABLE), Setting(MOST, LARGEST))
    assert int(run.cores[-1, 1]) == 1
    run = served(steady(40, 900, 5), VpaScaler(TABLE), ONE)
    assert run.cores[:3, 1].tolist() == [1, 2, 3]  # all of one is busy, and then of two


def test_several_workers_of_one_core_serve_a_constant_rate_where_one_of_several_needs_more() -> None:
    half_scales = [[0, *((30 + 30 // c) * MS * (b + 1) // 2 for b in range(1, 5))] for c in range(1, 5)]
    table_ns = np.array([[S] * 5, *half_scales])
    constant = steady(40, 400, 20)

    def run(scaler: Scaler) -> VerticalRun:
        return simulate_vertical(constant, table_ns.tolist(), scaler, first=Setting(MOST, LARGEST))

    one, several = run(ExactScaler(table_ns)), run(ReplicasScaler(table_ns))
    assert several.violations.sum() == one.violations.sum() == 0
    assert several.core_seconds < 0.7 * one.core_seconds


def test_the_core_seconds_that_were_at_work_are_those_of_its_batches() -> None:
    run = served(steady(4, 900, 5), StaticScaler(), ONE)
    assert run.batches[1] == 20
    assert run.busy_core_s == pytest.approx(20 * TABLE[1, 1] / S)


def test_a_horizontal_scaler_may_have_more_workers_than_a_model_was_measured_cores() -> None:
    assert Fa2Scaler(TABLE, most_workers=MOST + 5).most == Setting(1, LARGEST, MOST + 5)


def test_giving_up_a_few_saves_many_under_overload() -> None:
    crowd = steady(60, 400, 6)
    plain = served(crowd, StaticScaler(), Setting(1, LARGEST))
    saved = served(crowd, StaticScaler(), Setting(1, LARGEST), gives_way=True)
    assert saved.violations.sum() < plain.violations.sum()


def test_the_same_workload_gives_the_same_run() -> None:
    runs = [served(steady(30, 300, 4), ExactScaler(TABLE), Setting(MOST, LARGEST)) for _ in range(2)]
    assert runs[0].finished_ns.tolist() == runs[1].finished_ns.tolist()
    assert runs[0].cores.tolist() == runs[1].cores.tolist()
