from benchmarks.papers.sponge_live import core_seconds, effects_of

METRICS = """
gearshift_core_effect_seconds_bucket{le="0.005"} 2.0
gearshift_core_effect_seconds_bucket{le="0.01"} 3.0
gearshift_core_effect_seconds_bucket{le="+Inf"} 4.0
"""


def test_core_seconds_are_those_between_begin_and_end() -> None:
    changes = [(0.0, 4.0), (8.0, 1.0), (11.0, 2.0), (13.0, 3.0), (30.0, 4.0)]
    assert core_seconds(changes, 10.0, 14.0) == 1 * 1 + 2 * 2 + 3 * 1


def test_changes_that_took_too_long_are_counted() -> None:
    assert effects_of(METRICS) == ("4 changes, 1 longer than 10 ms", False)
    assert effects_of(METRICS.replace("4.0", "3.0")) == ("3 changes, 0 longer than 10 ms", True)
