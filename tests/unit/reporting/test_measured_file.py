import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.load_generator.replay_result import COLUMNS, Effort, Replay, empty_log, gear_shifts, lateness_of
from gearshift.reporting.measured_file import read_measured
from gearshift.reporting.runs import measured_series
from gearshift.result import latency_summary
from tests.unit.reporting.test_rows_page import result


def read(path: Path):  # type: ignore[no-untyped-def]
    return read_measured(path, "mine", slo_s=0.08, devices=1, of_gears=[0.9, 0.8])


def test_what_replay_printed_is_read_with_its_further_fields(tmp_path: Path) -> None:
    facts = msgspec.to_builtins(result()) | {"failed": 0, "valid": True, "gears": [[0.0, 1]]}
    (tmp_path / "run.json").write_text(json.dumps(facts))
    run = read(tmp_path / "run.json")
    assert (run.name, run.kind, run.result) == ("mine", "measured", result())


def a_replay() -> Replay:
    """Ten seconds of ten requests each, in gear 0 and then in gear 1, whose answers are slower and right less often."""
    later = np.repeat([False, True], 50)
    log = empty_log(0.1 * np.arange(100), np.arange(100, dtype=np.int32))
    log.answered_s[:] = log.due_s + np.where(later, 0.1, 0.05)
    log.outcome[:], log.gear[:], log.quality[:] = 0, later, ~later
    of_latency = latency_summary(log.latency_s)
    return Replay(
        result=result(),
        log=log,
        lateness=lateness_of(log, of_latency),
        effort=Effort(),
        why_invalid="",
        failed=0,
        gears=gear_shifts(log),
        runs={},
    )


def test_the_course_that_replay_prints_is_read_again_with_the_gears_in_force(tmp_path: Path) -> None:
    run = a_replay()
    (tmp_path / "run.json").write_bytes(
        msgspec.json.encode(run.as_json() | {"over_time": measured_series("", run).course})
    )
    made, of_log = read(tmp_path / "run.json"), measured_series("mine", run, [0.9, 0.8])
    assert made.course is not None
    assert of_log.course is not None
    assert made.course.seconds == list(range(10))
    for name in ("load_qps", "p95_s", "accuracy", "latency_s"):
        known, of_run = (np.array(getattr(one.course, name), dtype=np.float64) for one in (made, of_log))
        np.testing.assert_array_equal(known, of_run)
    assert made.in_force is not None
    assert made.in_force[[0, -1]] == pytest.approx([0.9, 0.8])
    assert (made.course.p95_s[0], made.course.p95_s[-1]) == (pytest.approx(0.05), pytest.approx(0.1))


@pytest.mark.parametrize("wrong", [{"gear": [0]}, {"gear": [-1] * 10}, {"bin_s": "x"}, {"seconds": []}])
def test_a_course_that_does_not_fit_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    run = a_replay()
    course = msgspec.to_builtins(measured_series("", run).course) | wrong
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(run.as_json() | {"over_time": course}))
    with pytest.raises(InvalidInput, match="is no replay"):
        read(tmp_path / "run.json")


def test_a_log_gives_the_course_over_time_and_counts_what_was_not_answered(tmp_path: Path) -> None:
    rows = [",".join(COLUMNS)]
    for n in range(100):
        due_s = 0.1 * n
        answered = n % 10 > 0
        told = ("answered", 200, int(n >= 50), "m", 0, 1.0) if answered else ("refused", 503, "", "", "", "")
        row = (due_s, due_s, due_s + 0.05, 0.05, *told, n)
        rows.append(",".join(map(str, row)))
    (tmp_path / "run.csv").write_text("\n".join(rows) + "\n")
    run = read(tmp_path / "run.csv")
    assert (run.result.requests, run.result.share_refused, run.result.share_late) == (100, 0.1, pytest.approx(0.1))
    assert run.result.accuracy == 1
    assert run.course is not None
    assert run.course.load_qps == [10.0] * 10
    assert run.in_force is not None
    assert run.in_force[[0, -1]] == pytest.approx([0.9, 0.8])
    assert np.nanmax(np.array(run.course.p95_s)) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("name", "content"), [("a.json", "{}"), ("a.json", "[1"), ("a.csv", "a,b\n1,2\n"), ("a.csv", "")]
)
def test_another_file_is_refused_with_a_sentence(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidInput, match=r"is no (replay|log of a replay)|is empty"):
        read(tmp_path / name)
