from dataclasses import replace

import numpy as np
import pytest

from gearshift.planner.language import replays as module
from gearshift.planner.language.candidates import BY_ID
from gearshift.planner.language.choices import GearChoice
from gearshift.planner.language.replays import Kept, Replays, replayed, workloads_of
from gearshift.profiles.profile import PART_A
from tests.unit.planner.language.test_choices import maker_on


def replays_with_prompts() -> Replays:
    maker = maker_on(1)
    request = maker.request
    records = np.resize(request.profile.answers.indices(PART_A), len(request.trace)).astype(np.int32)
    request = replace(request, records=records)
    return Replays(replace(maker, request=request), workloads_of(request, PART_A))


def test_given_prompts_are_planned_for_with_several_draws_of_ids_alone() -> None:
    first, *others = replays_with_prompts().workloads
    assert others
    for other in others:
        np.testing.assert_array_equal(first.arrivals_ns, other.arrivals_ns)
        np.testing.assert_array_equal(first.record, other.record)
        assert (first.by_id != other.by_id).all()


def test_what_does_not_look_at_ids_is_replayed_once_and_counts_for_all_draws() -> None:
    replays = replays_with_prompts()
    maker = replays.maker
    for candidate, stages in enumerate(maker.candidates.stages):
        choice = maker.constant(candidate)
        found = replays.of(choice)
        every = replayed(replays.request, maker.tables(choice), replays.workloads)
        by_id = any(stage.at == BY_ID for stage in stages[:-1])
        assert len(found.slowest_s) == (len(replays.workloads) if by_id else 1)
        assert np.isclose(found.quality, every.quality)


def test_the_first_draw_is_not_replayed_again() -> None:
    replays = replays_with_prompts()
    choice = replays.maker.constant(0)
    first = replays.of_first(choice)
    assert replays.of(choice).slowest_s[0] is first.slowest_s[0]
    assert len(replays.begun) == 0
    assert replays.of_first(choice) is replays.of(choice)


def test_replays_take_so_much_memory_and_those_asked_for_last_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT_BYTES", 20)
    kept = Kept[str]()
    first, second, third = ((GearChoice(candidate, 0.0, ()),) for candidate in range(3))
    for choice, name in ((first, "first"), (second, "second")):
        kept.keep(choice, name, [np.zeros(1)])
    assert kept.get(first) == "first"
    kept.keep(third, "third", [np.zeros(1)])
    assert (kept.get(first), kept.get(second), kept.get(third)) == ("first", None, "third")


def test_a_replay_that_was_not_kept_is_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT_BYTES", 1)
    replays = replays_with_prompts()
    choices = [replays.maker.constant(candidate) for candidate in range(2)]
    before = [replays.of(choice) for choice in choices]
    after = [replays.of(choice) for choice in choices]
    assert len(replays.seen) == 1
    for one, again in zip(before, after, strict=True):
        assert one.quality == again.quality
        np.testing.assert_array_equal(one.slowest_s[0], again.slowest_s[0])
