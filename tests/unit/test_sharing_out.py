"""How tests are shared out among processes (`tests/conftest.py`), tried by one whose process dies."""

import os
import re
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.conftest import ModulesTogether

BEFORE = "def test_one(): pass\ndef test_other(): pass\n"
DIES = """
import os, pathlib, subprocess, sys, time, pytest

@pytest.mark.parametrize("number", range(9))
def test_numbers(number):
    while number == 3 and not pathlib.Path("last").exists():  # by then the other process has nothing left to do
        time.sleep(0.02)
    if number == 3:
        left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        pathlib.Path("left").write_text(str(left.pid))
        os._exit(3)
"""
LAST = "import pathlib\ndef test_it(): pathlib.Path('last').touch()\n"


class Process:
    """One that has started, as xdist has them."""

    shutting_down = False


def test_a_process_that_has_collected_no_tests_yet_is_given_none() -> None:
    config: Any = SimpleNamespace(getvalue={"tx": ["popen"], "maxprocesses": None}.get)
    scheduler = ModulesTogether(config, None)
    new: Any = Process()
    scheduler.add_node(new)
    scheduler.workqueue = OrderedDict({"test_one.py": {"test_one.py::test_one": False}})
    scheduler._reschedule(new)
    assert list(scheduler.workqueue) == ["test_one.py"]
    assert scheduler.assigned_work == {new: {}}


@pytest.mark.long
def test_a_test_whose_process_dies_fails_once_and_all_others_are_run_and_what_it_started_ends(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"test_{number}.py").write_text(BEFORE)
    (tmp_path / "test_8.py").write_text(DIES)
    (tmp_path / "test_9.py").write_text(LAST)
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "tests.conftest", "-c", os.devnull, "--timeout", "60"]
    python_path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert re.findall(r"^FAILED (\S+)", done.stdout, re.MULTILINE) == ["test_8.py::test_numbers[3]"], done.stdout
    assert re.search("1 failed, 25 passed", done.stdout), done.stdout
    left = int((tmp_path / "left").read_text())
    assert not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE
