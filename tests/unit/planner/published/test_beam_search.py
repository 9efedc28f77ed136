import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.hardware import GIB, Device, Hardware, identical_devices
from gearshift.placement import Placement
from gearshift.planner.published.beam_search import Placer, beam_search, sites
from gearshift.profiles.profile import Profile
from tests.often import often
from tests.unit.planner.space.test_hosts_everywhere import profile_of
from tests.unit.planner.spanning import curve, mixed, nodes, spanning_profile

LITTLE = settings(max_examples=often(60), deadline=None, derandomize=True)


def placer_of(profile: Profile, hardware: Hardware, *, seed: int = 0) -> Placer:
    return Placer(hardware, sites(profile, hardware), np.random.default_rng(seed))


def first_of(placer: Placer, *models: str) -> Placement:
    placement = placer.first(models)
    assert placement is not None
    return placement


def most_replicas(placement: Placement) -> tuple[float, ...]:
    return (-len(placement.replicas),)


# Where a model can be -------------------------------------------------------------------------------------------------


def test_a_model_can_be_where_its_degree_was_profiled_and_as_many_devices_are_on_one_node() -> None:
    found = {(site.model, site.degree, site.device_ids) for site in sites(spanning_profile(), nodes(2, 1))}
    assert found == {
        ("m0", 1, ("n0/0", "n0/1")),
        ("m0", 1, ("n1/0",)),
        ("m0", 2, ("n0/0", "n0/1")),
        ("m1", 2, ("n0/0", "n0/1")),
    }


def test_each_device_of_a_replica_holds_its_part_of_the_memory() -> None:
    assert {site.memory_bytes for site in sites(spanning_profile(), nodes(2)) if site.model == "m1"} == {20 * GIB}


def test_a_device_too_small_for_its_part_is_left_out() -> None:
    assert {site.model for site in sites(spanning_profile(), nodes(2, gib=19))} == {"m0"}


def test_degrees_other_than_1_2_4_and_8_are_not_used() -> None:
    curves = (curve("m0", 0.1, degree=3), curve("m0", 0.1, degree=8), curve("m1", 0.1))
    assert {site.degree for site in sites(spanning_profile(curves), nodes(8))} == {1, 8}


def test_devices_of_several_kinds_have_their_own_run_times() -> None:
    seconds = {
        site.device_ids[0]: site.curve.median_s for site in sites(spanning_profile(), mixed()) if site.degree == 1
    }
    assert seconds == {"n0/0": (0.1,), "old/0": (0.2,)}


# Sampling -------------------------------------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Profile, Hardware]:
    """Up to four models of several degrees, on up to three nodes of devices of different memory."""
    curves = []
    for model in range(draw(st.integers(1, 4))):
        degrees = draw(st.sets(st.sampled_from([1, 2, 4]), min_size=1))
        gib = draw(st.integers(1, 12))
        curves += [curve(f"m{model}", 0.1, degree=degree, gib=gib) for degree in sorted(degrees)]
    names = sorted({c.model for c in curves})
    memories = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(2, 20)), min_size=1, max_size=6))
    devices = [
        Device(id=f"d{i}", node=f"n{node}", kind="gpu", memory_bytes=gib * GIB)
        for i, (node, gib) in enumerate(memories)
    ]
    base = profile_of([0] * len(names))
    return Profile(operator="task", curves=tuple(curves), predictions=base.predictions), Hardware(
        devices=tuple(devices)
    )


@LITTLE
@given(worlds(), st.integers(0, 1000))
def test_memory_is_kept_no_model_is_twice_on_a_device_and_replicas_stay_within_a_node(
    world: tuple[Profile, Hardware], seed: int
) -> None:
    profile, hardware = world
    placer = placer_of(profile, hardware, seed=seed)
    first = placer.first(profile.models)
    if first is None:
        return
    assert sorted(replica.model for replica in first.replicas) == sorted(profile.models)
    placement = beam_search(placer, most_replicas, [first], width=2, expansions=3)
    used = dict.fromkeys((device.id for device in hardware.devices), 0.0)
    node_of = {device.id: device.node for device in hardware.devices}
    for replica in placement.replicas:
        measured = profile.curve(replica.model, device_kind="gpu", tensor_parallel=replica.tensor_parallel)
        assert len(replica.device_ids) == replica.tensor_parallel
        assert len({node_of[device] for device in replica.device_ids}) == 1
        for device in replica.device_ids:
            used[device] += measured.memory_bytes / replica.tensor_parallel
    assert all(used[device.id] <= device.memory_bytes for device in hardware.devices)
    pairs = [(replica.model, device) for replica in placement.replicas for device in replica.device_ids]
    assert len(set(pairs)) == len(pairs)


def test_all_ways_to_add_a_replica_are_equally_likely() -> None:
    """Four devices: m0 on one of them in 4 ways, on two in 6, and m1 on two in 6, on four in 1."""
    placer = placer_of(spanning_profile(), nodes(4))
    spans = [len(first_of(placer, "m0").replicas[0].device_ids) for _ in range(2000)]
    assert spans.count(2) / 2000 == pytest.approx(0.6, abs=0.04)


def test_models_that_fit_only_in_one_way_are_placed_in_it() -> None:
    """Of 2^5 ways, two leave room for the large model; the last attempt puts it first."""
    profile = profile_of([10, 10, 10, 10, 30])
    assert first_of(placer_of(profile, identical_devices(2, memory_bytes=40)), *profile.models)


def test_models_that_do_not_fit_together_have_no_placement() -> None:
    assert placer_of(profile_of([10, 20]), identical_devices(1, memory_bytes=29)).first(["m0", "m1"]) is None


def test_a_placement_is_cut_to_the_models_asked_for_and_completed_with_those_it_lacks() -> None:
    placer = placer_of(profile_of([10, 20, 5]), identical_devices(2, memory_bytes=25))
    both = first_of(placer, "m0", "m1")
    completed = placer.completed(both, {"m1", "m2"})
    assert completed is not None
    assert completed.models == ("m1", "m2")
    assert [r for r in completed.replicas if r.model == "m1"] == [r for r in both.replicas if r.model == "m1"]


def test_a_placement_without_room_for_a_model_cannot_be_completed() -> None:
    placer = placer_of(profile_of([20, 10]), identical_devices(1, memory_bytes=25))
    assert placer.completed(first_of(placer, "m0"), {"m0", "m1"}) is None


def test_a_full_placement_has_no_expansion() -> None:
    placer = placer_of(profile_of([10]), identical_devices(1, memory_bytes=25))
    assert placer.expanded(first_of(placer, "m0")) is None


# Search ---------------------------------------------------------------------------------------------------------------


def test_replicas_are_added_as_long_as_that_is_better() -> None:
    placer = placer_of(profile_of([10, 20]), identical_devices(8, memory_bytes=30))
    assert len(beam_search(placer, most_replicas, [first_of(placer, "m0", "m1")]).replicas) == 16


def test_replicas_that_bring_nothing_are_not_added() -> None:
    placer = placer_of(profile_of([10, 20]), identical_devices(8, memory_bytes=30))
    first = first_of(placer, "m0", "m1")
    assert beam_search(placer, lambda placement: (0.0,), [first]) == first


def test_the_best_of_several_starts_is_followed() -> None:
    placer = placer_of(profile_of([10]), identical_devices(4, memory_bytes=10))
    starts = [first_of(placer, "m0") for _ in range(8)]
    wanted = next(start for start in starts if start != starts[0])
    assert beam_search(placer, lambda placement: (float(placement != wanted),), starts, width=1) == wanted


def test_the_same_seed_gives_the_same_placement() -> None:
    def found(seed: int) -> Placement:
        placer = placer_of(spanning_profile(), nodes(4, 4), seed=seed)
        return beam_search(placer, most_replicas, [first_of(placer, "m0", "m1")], width=2, expansions=2)

    assert found(3) == found(3)
    assert len({found(seed) for seed in range(5)}) > 1
