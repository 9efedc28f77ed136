from benchmarks.shared.bars import Bars


def test_every_bar_is_counted_as_held_or_missed() -> None:
    bars = Bars()
    bars.at_least("gain", 1.3, 1.3)
    bars.at_least("agreement", float("nan"), 0.97)
    bars.at_most("p99 over the base model's", 1.04, 1.03)
    bars.at_most("retraining, s", 2, 10)
    assert str(bars).splitlines() == [
        "held: gain: 1.3, bar at least 1.3",
        "MISSED: agreement: nan, bar at least 0.97",
        "MISSED: p99 over the base model's: 1.04, bar at most 1.03",
        "held: retraining, s: 2, bar at most 10",
        "2 of 4 bars held",
    ]
