from dataclasses import replace

import numpy as np

from gearshift.planner.language.candidates import BY_ID
from gearshift.planner.language.replays import Replays, replayed, workloads_of
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
    begun = replays.begun[choice]
    assert replays.of(choice).slowest_s[0] is begun.slowest_s
    assert first.slowest_s[0] is begun.slowest_s
    assert replays.of_first(choice) is replays.of(choice)
