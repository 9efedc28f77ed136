from benchmarks.llm.mt_bench_frontier import has_all, without

POINTS = [
    {"rate": "0.15", "kind": kind, "asked_s": asked_s}
    for kind, asked_s in (("shares", 0.25), ("shares", 0.5), ("oracle", 0.5), ("oracle", 1.0))
]


def test_a_kind_that_lacks_a_limit_is_planned_anew_for_all() -> None:
    assert has_all(POINTS, "0.15", "oracle", [0.5, 1.0])
    assert not has_all(POINTS, "0.15", "shares", [0.5, 1.0])
    assert not has_all(POINTS, "0.1", "oracle", [0.5, 1.0])
    assert without(POINTS, "0.15", "shares", [0.5, 1.0]) == [POINTS[0], *POINTS[2:]]
