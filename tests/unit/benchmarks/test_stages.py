import json
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.stages import Facts, Stages


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    return Stages(tmp_path / "found.json", 60.0, {"machine": "a little one"})


def written(stages: Stages) -> Any:
    return json.loads(stages.out.read_text())["stages"]


def failing(seconds: float) -> Facts:
    raise ValueError("no such thing")


def test_what_a_stage_found_is_in_the_file_before_the_next_one_fails(stages: Stages) -> None:
    stages.run("first", lambda seconds: {"gain": 1.5}, least_s=1, most_s=10)
    assert written(stages)["first"]["gain"] == 1.5
    stages.run("second", failing, least_s=1, most_s=10)
    stages.run("third", lambda seconds: {}, least_s=1, most_s=10)
    found = written(stages)
    assert (found["second"]["status"], found["second"]["why"]) == ("failed", "ValueError: no such thing")
    assert found["first"]["gain"] == 1.5
    assert found["third"]["status"] == "done"


def test_a_stage_that_takes_too_long_is_ended_and_the_next_one_runs(stages: Stages) -> None:
    stages.run("long", lambda seconds: time.sleep(30) or {}, least_s=0, most_s=0.05)
    stages.run("next", lambda seconds: {"seconds": seconds}, least_s=1, most_s=7)
    assert written(stages)["long"]["status"] == "out of time"
    assert written(stages)["next"]["seconds"] == 7


def test_a_stage_for_which_time_is_short_or_something_is_missing_is_skipped_with_a_word(stages: Stages) -> None:
    stages.run("large", lambda seconds: {}, least_s=1000, most_s=2000)
    stages.run("on it", lambda seconds: {}, least_s=0, most_s=1, needs=["large"])
    found = written(stages)
    assert found["large"]["status"] == "skipped"
    assert found["large"]["why"].endswith("s are left, and it needs 1000")
    assert found["on it"] == {"status": "skipped", "why": "it needs large, which was not done"}


def test_what_json_does_not_know_is_told_in_words(stages: Stages) -> None:
    stages.run("odd", lambda seconds: {"it": 1j}, least_s=0, most_s=10)
    assert written(stages)["odd"]["it"] == "1j"
