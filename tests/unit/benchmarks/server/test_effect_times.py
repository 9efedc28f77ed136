import random
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.server.effect_times import (
    BATCH,
    Change,
    Way,
    began_between,
    effect_ms,
    first_after,
    held_ns,
    metered_effect_ms,
    walk,
)
from gearshift.errors import InvalidInput
from gearshift.runtime.actuators.base import Effect

MS = 1_000_000


def test_a_walk_goes_one_core_at_a_time_and_stays_within_its_bounds() -> None:
    cores = [1, *walk(4, 200, random.Random(1))]
    assert {abs(after - before) for before, after in pairwise(cores)} == {1}
    assert set(cores) == {1, 2, 3, 4}


QUOTA = Way("", ("cgroup",), 0.25, 4)


def seen(*spans_ms: tuple[int, int, float]) -> np.ndarray:
    return np.array([(begun * MS, ended * MS, 1, 1, quota) for begun, ended, quota in spans_ms], dtype=BATCH)


def test_who_runs_when_it_is_decided_is_not_counted() -> None:
    change = Change(cores=2, decided_ns=10 * MS, held_ns=31 * MS)
    ran = seen((0, 30, 0.25), (33, 50, 0.5))
    assert effect_ms(change, ran, QUOTA) == 3
    assert metered_effect_ms(change, ran) == 1
    assert not began_between(change, ran, QUOTA)
    assert first_after(change, ran)["begun_ns"] == 33 * MS


def test_batches_with_the_old_setting_that_begin_in_between_are_counted() -> None:
    change = Change(cores=2, decided_ns=10 * MS, held_ns=72 * MS)
    ran = seen((0, 30, 0.25), (31, 50, 0.25), (51, 71, 0.25), (73, 90, 0.5))
    assert effect_ms(change, ran, QUOTA) == 73 - 30
    assert metered_effect_ms(change, ran) == 72 - 30
    assert began_between(change, ran, QUOTA)


def test_a_batch_that_saw_it_before_the_actuator_said_so_is_the_first() -> None:
    change = Change(cores=2, decided_ns=10 * MS, held_ns=32 * MS)
    ran = seen((0, 30, 0.25), (31, 50, 0.5))
    assert effect_ms(change, ran, QUOTA) == 1
    assert not began_between(change, ran, QUOTA)


def test_what_held_while_the_batch_still_ran_took_no_time() -> None:
    change = Change(cores=2, decided_ns=10 * MS, held_ns=11 * MS)
    assert metered_effect_ms(change, seen((0, 30, 0.25), (32, 50, 0.5))) == 0


def test_what_a_way_does_not_change_is_not_looked_at() -> None:
    ran = seen((0, 1, 0.5))
    assert Way("", ("cgroup",), 0.25, 4).holds(ran[0], 2)
    assert not Way("", ("cgroup",), 0.25, 4).holds(ran[0], 1)
    assert Way("", ("cgroup", "affinity", "threads"), 0.5, 4).holds(ran[0], 1)
    assert not Way("", ("affinity",), 1.0, 2).holds(ran[0], 2)


def test_cores_that_were_not_had_end_the_benchmark() -> None:
    assert held_ns(Effect(cores=2, asked_ns=1, effective_ns=3), 2) == 3
    with pytest.raises(InvalidInput):
        held_ns(Effect(cores=1, asked_ns=1, effective_ns=3, problem="none are free"), 2)
