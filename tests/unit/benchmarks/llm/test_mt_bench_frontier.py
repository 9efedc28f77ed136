import numpy as np

from benchmarks.llm.mt_bench_frontier import has_all, oracle, without
from gearshift.planner.language.candidates import answers_of, candidate_table
from gearshift.profiles.profile import PART_A
from tests.language_profiles import language_profile

POINTS = [
    {"rate": "0.15", "kind": kind, "asked_s": asked_s}
    for kind, asked_s in (("shares", 0.25), ("shares", 0.5), ("oracle", 0.5), ("oracle", 1.0))
]


def test_a_kind_that_lacks_a_limit_is_planned_anew_for_all() -> None:
    assert has_all(POINTS, "0.15", "oracle", [0.5, 1.0])
    assert not has_all(POINTS, "0.15", "shares", [0.5, 1.0])
    assert not has_all(POINTS, "0.1", "oracle", [0.5, 1.0])
    assert without(POINTS, "0.15", "shares", [0.5, 1.0]) == [POINTS[0], *POINTS[2:]]


def test_an_oracle_is_never_behind() -> None:
    profile, work_s, best = language_profile(), np.array([1.0, 3.0, 10.0]), []
    for of in (profile, oracle(profile)):
        known = answers_of(of, profile.answers.indices(PART_A))
        table = candidate_table(known, work_s)
        cheap = table.output_tokens @ work_s <= 0.5 * float((known.output_tokens.mean(axis=1) * work_s)[-1])
        best.append(float(table.quality[cheap].max()))
    assert best[1] >= best[0]
