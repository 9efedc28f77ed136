"""The compiled simulation is the plain one, decision for decision."""

import sys
from dataclasses import fields

import numpy as np
from hypothesis import given, settings

from gearshift.cascade import Cascade
from gearshift.language_workload import LanguageWorkload
from gearshift.profiles.engines.engine_tables import EngineTables, engine_tables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.simulator.engines.simulate_language import simulate_language
from tests.language_task import (
    language_cases,
    language_gear,
    language_plan,
    language_workload,
    random_answers,
    small_engine,
)
from tests.often import often
from tests.unit.simulator.engines.plain import PlainSimulation

module = sys.modules[simulate_language.__module__]


def require_equal(tables: EngineTables, profile: LanguageProfile, workload: LanguageWorkload) -> None:
    made = simulate_language(tables, profile, workload, log=True)
    plain = PlainSimulation(tables, profile, workload).run(log=True)
    assert made.log == [tuple(map(int, row)) for row in plain.log]
    for field in fields(made):
        mine, theirs = getattr(made, field.name), getattr(plain, field.name)
        if isinstance(mine, np.ndarray):
            assert (mine == theirs).all(), field.name
    assert made.most_waiting == plain.most_waiting


@settings(max_examples=often(100))
@given(language_cases())
def test_random_plans_give_the_decisions_and_the_times_of_plain_engines(case):
    require_equal(*case)


@settings(max_examples=often(20))
@given(language_cases())
def test_so_do_workloads_with_token_counts_of_their_own(case):
    tables, profile, workload = case
    n, generator = len(workload), np.random.default_rng(len(workload))
    given_tokens = LanguageWorkload(
        arrivals_ns=workload.arrivals_ns,
        record=workload.record,
        by_id=workload.by_id,
        duration_s=workload.duration_s,
        prompt_tokens=generator.integers(1, 41, n),
        output_tokens=generator.integers(1, 25, n) if n % 2 else None,
    )
    require_equal(tables, profile, given_tokens)


def test_runs_with_more_shifts_and_decisions_than_there_was_room_for_are_whole(monkeypatch):
    placed = {"small-0": "d0", "large-0": "d1"}
    profile = LanguageProfile(
        operator="chat",
        engines=(small_engine("small"), small_engine("large")),
        answers=random_answers(("small", "large"), 12, 0),
    )
    gears = [
        language_gear(placed, Cascade(models=(model,)), load=load)
        for model, load in (("large", (0.0, 5.0)), ("small", (5.0, None)))
    ]
    tables = engine_tables(language_plan(placed, *gears, load_unit="outstanding_requests"), profile)
    bursts = [1000 * burst for burst in range(20) for _ in range(12)]
    workload = language_workload(bursts, [i % 12 for i in range(len(bursts))])
    whole = simulate_language(tables, profile, workload, log=True)
    monkeypatch.setattr(module, "FIRST_SHIFTS", 1)
    monkeypatch.setattr(module, "ROWS_OF_REQUEST", 1)
    again = simulate_language(tables, profile, workload, log=True)
    assert len(again.shifts) == 39
    assert again.log == whole.log
    assert (again.shifts == whole.shifts).all()
