"""What Gearshift says and writes for every kind of plan is as recorded."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.goldens.compare import differences, shown

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
REMEDY = "if the change is meant, run record.py and look at the diff; then renew `recorded` as record.py says"


@pytest.mark.timeout(1200)
def test_every_kind_of_plan_does_what_is_recorded(tmp_path: Path) -> None:
    out = tmp_path / "now"
    done = subprocess.run(
        [sys.executable, HERE / "record.py", out, "--brief"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = [line for _, diff in differences(HERE / "recorded", out) for line in shown(diff)]
    assert not found, "\n".join([REMEDY, *found])


def test_what_differs_is_named_and_shown_where_it_differs(tmp_path: Path) -> None:
    for folder, text in (("a", "same\n" + "x" * 500 + "old\n"), ("b", "same\n" + "x" * 500 + "new\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.txt").write_text(text)
        (tmp_path / folder / "same.txt").write_text("same\n")
    (tmp_path / "b" / "more.txt").write_text("more\n")
    found = dict(differences(tmp_path / "a", tmp_path / "b"))
    assert list(found) == ["more.txt", "one.txt"]
    assert found["more.txt"][-1] == "+more"
    assert [line.partition("x (")[0].lstrip("+-. x") for line in shown(found["one.txt"])[-2:]] == [
        "old ... (504 characters)",
        "new ... (504 characters)",
    ]
