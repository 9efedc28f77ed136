import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.planner.published.coordination.load_balance import (
    FULL,
    SLACK,
    DoesNotFit,
    least_utilisation,
    prune,
    utility,
)
from gearshift.planner.space.hosts import Held, Host, count_of, seconds_held

MODELS = ("big", "mid", "small")


def hosts_of(memory_bytes: Sequence[int], needs: dict[str, int], seconds_of: dict[str, float]) -> list[Host]:
    hosts = []
    for i, memory in enumerate(memory_bytes):
        fits = {m: b for m, b in needs.items() if b <= memory}
        seconds = {m: seconds_of[m] for m in fits}
        hosts.append(Host(device_ids=(f"d{i}",), memory_bytes=memory, seconds=seconds, needs_bytes=fits))
    return hosts


NEEDS = {"big": 6, "mid": 4, "small": 2}
SECONDS = {"big": 0.03, "mid": 0.01, "small": 0.001}


def test_where_everything_fits_nothing_is_pruned() -> None:
    held = prune(hosts_of([12, 12], NEEDS, SECONDS), [{"big": 1.0}])
    assert held == {"d0": ["big", "mid", "small"], "d1": ["big", "mid", "small"]}


def test_a_model_in_no_cascade_goes_first() -> None:
    held = prune(hosts_of([8], NEEDS, SECONDS), [{"small": 10.0, "big": 1.0}])
    assert held == {"d0": ["big", "small"]}


def test_the_replica_that_matters_least_for_balance_goes() -> None:
    # small carries nothing and goes; 2 are over still.  big is 0.9 of a device, mid 0.1.  Without mid on d0 a device is
    # half busy, without big 0.9 of d1 is: mid goes.  On d1 mid is the last then, and big goes.
    held = prune(hosts_of([8, 8], NEEDS, SECONDS), [{"big": 30.0, "mid": 10.0}])
    assert held == {"d0": ["big"], "d1": ["mid"]}


def test_the_prune_that_makes_all_fit_is_worth_most_and_not_nothing_as_in_the_equation_as_printed() -> None:
    over = 4
    assert utility(6, over, 0.5) == utility(4, over, 0.5) == 8.0
    assert utility(2, over, 0.5) == 4.0
    printed = {freed: max(0, over - freed) / 0.5 for freed in (2, 4, 6)}
    assert printed == {2: 4.0, 4: 0.0, 6: 0.0}


def test_by_the_equation_as_printed_no_replica_could_be_pruned_here() -> None:
    # 4 over, both replicas free that or more: printed utilities are 0, and section 4.4 calls that an error.
    assert prune(hosts_of([6], {"big": 6, "mid": 4}, SECONDS), [{"mid": 1.0}]) == {"d0": ["mid"]}


def test_pruning_is_worth_nothing_where_memory_is_not_over_allocated() -> None:
    assert utility(6, 0, 0.5) == utility(6, -3, 0.0) == 0


def test_a_replica_that_carries_no_load_is_worth_more_than_any() -> None:
    assert utility(1, 4, 0.0) == math.inf


def test_the_last_replica_of_a_model_in_use_stays() -> None:
    assert prune(hosts_of([6], NEEDS, SECONDS), [{"big": 1.0}, {"small": 1.0}]) == DoesNotFit(("big", "small"), ())


def test_a_prune_that_leaves_too_much_load_is_refused_and_names_the_load() -> None:
    demands = [{"small": 1500.0}, {"big": 1.0}]  # the first needs small on both devices
    assert prune(hosts_of([6, 6], NEEDS, SECONDS), demands) == DoesNotFit(("big", "small"), (0,))


def test_asked_for_more_replicas_of_a_model_others_go() -> None:
    hosts, demands = hosts_of([8, 8, 8], NEEDS, SECONDS), [{"big": 1.0, "mid": 1.0}]
    assert isinstance(held := prune(hosts, demands, at_least={"mid": 2}), dict)
    assert count_of(held, "mid") >= 2
    assert isinstance(held := prune(hosts, demands, at_least={"big": 2}), dict)
    assert count_of(held, "big") >= 2
    assert isinstance(prune(hosts, demands, at_least={"big": 3}), DoesNotFit)


def over_allocated(hosts: Sequence[Host], held: Held) -> bool:
    return any(host.over_bytes(held[host.name]) > 0 for host in hosts)


BYTES = st.integers(1, 10)
DEMAND = st.dictionaries(st.sampled_from(MODELS), st.floats(0.1, 300.0), min_size=1)


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 25), min_size=1, max_size=6), st.tuples(BYTES, BYTES, BYTES), st.lists(DEMAND, max_size=4)
)
def test_what_stays_fits_and_balances(memory: Any, needs: Any, demands: Any) -> None:
    hosts = hosts_of(memory, dict(zip(MODELS, needs, strict=True)), SECONDS)
    everywhere = seconds_held(hosts, {host.name: list(host.seconds) for host in hosts})
    demands = [d for d in demands if least_utilisation(d, everywhere) <= FULL]
    held = prune(hosts, demands)
    if isinstance(held, dict):
        assert not over_allocated(hosts, held)
        for demand in demands:
            assert least_utilisation(demand, seconds_held(hosts, held)) <= FULL + SLACK


def test_pruning_is_the_same_every_time() -> None:
    hosts = hosts_of([7, 8, 9, 7], NEEDS, SECONDS)
    demands = [{"big": 20.0, "small": 100.0}, {"mid": 50.0}]
    assert len({str(prune(hosts, demands)) for _ in range(5)}) == 1


@pytest.mark.parametrize("memory", [[2], [4], [2, 4]])
def test_a_model_that_fits_nowhere_is_never_held(memory: list[int]) -> None:
    held = prune(hosts_of(memory, NEEDS, SECONDS), [{"small": 1.0}])
    assert isinstance(held, dict)
    assert count_of(held, "big") == 0
