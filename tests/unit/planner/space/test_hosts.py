from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.hardware import GIB, Hardware
from gearshift.placement import Placement
from gearshift.planner.space.hosts import count_of, hosts_of, placement_of, replica_shares, seconds_held
from tests.unit.planner.spanning import CURVES, curve, mixed, nodes, spanning_profile

PAIRS = {("n0/0", "n0/1"), ("n0/2", "n0/3")}


def test_where_all_models_fit_one_device_each_device_is_a_host() -> None:
    hosts = hosts_of(spanning_profile(), nodes(2, 1, gib=80), models=("m0",))
    assert [host.device_ids for host in hosts] == [("n0/0",), ("n0/1",), ("n1/0",)]


def test_hosts_are_as_large_as_the_narrowest_way_of_the_widest_model() -> None:
    assert {host.device_ids for host in hosts_of(spanning_profile(), nodes(4))} == PAIRS
    (only,) = hosts_of(spanning_profile(), nodes(4, gib=19))
    assert only.replicas["m1"][0].tensor_parallel == 4
    assert len(only.replicas["m0"]) == 4


def test_a_host_answers_with_all_its_replicas_and_each_device_holds_its_part() -> None:
    host, _ = hosts_of(spanning_profile(), nodes(4))
    assert host.seconds == {"m0": pytest.approx(0.05), "m1": pytest.approx(0.4)}
    assert host.needs_bytes == {"m0": 10 * GIB, "m1": 20 * GIB}
    assert host.over_bytes(["m0", "m1"]) == -2 * GIB
    assert [r.device_ids for r in host.replicas["m0"]] == [("n0/0",), ("n0/1",)]
    assert [(r.device_ids, r.tensor_parallel) for r in host.replicas["m1"]] == [(("n0/0", "n0/1"), 2)]


def test_devices_left_over_do_without_the_models_that_span_more() -> None:
    hosts = hosts_of(spanning_profile(), nodes(3, 1))
    assert [(host.name, list(host.seconds)) for host in hosts] == [
        ("n0/0+n0/1", ["m0", "m1"]),
        ("n0/2", ["m0"]),
        ("n1/0", ["m0"]),
    ]


def test_hosts_of_several_kinds_have_their_own_run_times() -> None:
    hosts = hosts_of(spanning_profile(), mixed())
    assert [round(host.seconds["m0"], 3) for host in hosts] == [0.05, 0.05, 0.1, 0.1]


def test_a_model_profiled_on_one_kind_has_no_host_of_another() -> None:
    profile = spanning_profile(tuple(c for c in CURVES if (c.model, c.device_kind) != ("m1", "old")))
    at = {host.name: list(host.seconds) for host in hosts_of(profile, mixed())}
    assert at["n0/0+n0/1"] == ["m0", "m1"]
    assert [models for name, models in at.items() if name.startswith("old")] == [["m0"]] * 4


def test_where_nothing_fits_it_is_refused() -> None:
    wide = spanning_profile((curve("m0", 0.1, degree=2), curve("m1", 0.1, degree=4)))
    with pytest.raises(InvalidInput, match="no model fits the memory of any device; plan for devices with more"):
        hosts_of(wide, nodes(1, 1))


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), st.sampled_from([10, 19, 40]))
def test_each_device_is_in_one_host_which_is_on_one_node(counts: list[int], gib: int) -> None:
    hardware = nodes(*counts, gib=gib)
    node = {d.id: d.node for d in hardware.devices}
    hosts = hosts_of(spanning_profile(), hardware)
    assert Counter(d for host in hosts for d in host.device_ids) == Counter(list(node))
    for host in hosts:
        assert len({node[d] for d in host.device_ids}) == 1
        for model, replicas in host.replicas.items():
            assert [d for r in replicas for d in r.device_ids] == list(host.device_ids)
            assert host.over_bytes([model]) <= 0


def test_what_hosts_hold_becomes_a_placement_with_the_shares_split_among_alike_replicas() -> None:
    hosts = hosts_of(spanning_profile(), nodes(4))
    first, second = (host.name for host in hosts)
    held = {first: ["m0", "m1"], second: ["m0"]}
    placement = placement_of(hosts, held)
    assert isinstance(placement, Placement)
    assert [(r.model, len(r.device_ids)) for r in placement.replicas] == [("m0", 1)] * 2 + [("m1", 2)] + [("m0", 1)] * 2
    shares = replica_shares(hosts, {("m0", first): 0.4, ("m0", second): 0.6, ("m1", first): 1.0})
    assert shares == pytest.approx(
        {"m0@n0/0": 0.2, "m0@n0/1": 0.2, "m0@n0/2": 0.3, "m0@n0/3": 0.3, "m1@n0/0+n0/1": 1.0}
    )
    assert (count_of(held, "m0"), count_of(held, "m1")) == (2, 1)
    assert seconds_held(hosts, held)[second] == {"m0": hosts[1].seconds["m0"]}


def test_hosts_come_in_the_order_of_their_first_devices() -> None:
    devices = nodes(2, 2).devices
    shuffled = Hardware(devices=tuple(devices[i] for i in (2, 0, 3, 1)))
    assert [host.name for host in hosts_of(spanning_profile(), shuffled)] == ["n1/0+n1/1", "n0/0+n0/1"]
