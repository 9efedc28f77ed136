"""By what a compiled function is kept."""

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest

from gearshift.simulator.engines.kernel import loop as engines
from gearshift.simulator.kernel import loop
from gearshift.support.compiling import cache
from gearshift.support.compiling.cache import Locator, folder_of, key_of

MODULE = """
import math
from typing import NamedTuple

MOST = 4
UNREAD = 5
EDGES = np.array([1, 2])
TABLE = (1, 2)

class Given(NamedTuple):
    first: int
    second: int

def least(x):
    return min(x, MOST) + math.ceil(TABLE[0])

least = numba.njit(least)

def other(x):
    return x

def run(given):
    if given.first > EDGES[0]:
        return least(given.first) + policies.limited(given.second)
    return 7
"""
POLICIES = """
MOST = 9

def limited(x):
    return min(x, MOST)

limited = numba.njit(limited)

def unread(x):
    return x
"""


def made(text: str, **names: Any) -> Any:
    module = ModuleType("gearshift.made")
    module.__dict__.update({"numba": numba, "np": np, **names})
    exec(compile(text, "made.py", "exec"), module.__dict__)
    return module


def key(old: str = "", new: str = "") -> str:
    """The key of `run` with a piece of its sources replaced."""
    assert (MODULE + POLICIES).count(old) == 1 or not old
    return key_of(made(MODULE.replace(old, new), policies=made(POLICIES.replace(old, new))).run)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    return min(x, MOST)\n\nl", "    # a comment\n\n    return min(x, MOST)\n\nl"),
        ("def limited(x):", 'def limited(x):\n    """A docstring."""'),
        ("def run(given):", 'def run(given):\n    """A docstring."""'),
        ("def run(given):", "def run(given: Given) -> int:"),
        ("UNREAD = 5", "UNREAD = 6"),
        ("def other(x):\n    return x", "def other(x):\n    return x + 1"),
        ("def unread(x):\n    return x", "def unread(x):\n    return x + 1"),
    ],
)
def test_what_a_function_does_not_reach_leaves_its_key(old: str, new: str) -> None:
    assert key(old, new) == key()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("MOST = 4", "MOST = 5"),
        ("MOST = 9", "MOST = 10"),
        ("EDGES = np.array([1, 2])", "EDGES = np.array([1, 3])"),
        ("TABLE = (1, 2)", "TABLE = (2, 2)"),
        ("return 7", "return 8"),
        ("    return min(x, MOST)\n\nl", "    return max(x, MOST)\n\nl"),
        ("+ math.ceil", "- math.ceil"),
        ("math.ceil", "math.floor"),
        ("least = numba.njit(least)", 'least = numba.njit(least, fastmath={"nsz", "arcp"})'),
        ("    first: int\n    second: int", "    second: int\n    first: int"),
    ],
)
def test_what_a_function_reaches_changes_its_key(old: str, new: str) -> None:
    assert key(old, new) != key()


def test_each_large_function_has_a_key_of_its_own_that_a_change_of_how_we_compile_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [key_of(each.run) for each in (loop, engines)]
    assert len(set(before)) == 2
    (tmp_path / "passes.py").write_text("")
    monkeypatch.setattr(cache, "_COMPILERS", [tmp_path / "passes.py"])
    assert not set(before) & {key_of(each.run) for each in (loop, engines)}


def test_the_folders_used_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "_KEPT", 2)
    functions = [made(f"def run{number}(x):\n    return {number}").__dict__[f"run{number}"] for number in range(3)]
    for used, function in enumerate(functions):
        locator = Locator.from_function(function, "made.py")
        assert locator is not None
        os.utime(locator.get_cache_path(), (used, used))
    assert [folder_of(function).exists() for function in functions] == [False, True, True]


def test_nothing_is_kept_where_no_folder_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert Locator.from_function(made("def run(x):\n    return x").run, "made.py") is None
