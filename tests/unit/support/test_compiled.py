"""Compilation, and the cache trap: Numba's own would keep an old policy silently."""

import fcntl
import importlib
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

import gearshift
from gearshift.support.compiled import _LARGE, COMPILING, apart, compiled
from gearshift.support.compiling.by_address import by_address
from gearshift.support.compiling.cache import folder_of

PACKAGE = Path(gearshift.__file__).parent
OLD = "return queue_length if queue_length < largest_batch_size else largest_batch_size"

LITTLE_KERNEL = """
from gearshift.policies import batching
from gearshift.support.compiled import compiled, inlined

batch_size = inlined(batching.batch_size)


@compiled
def run(queued):
    return batch_size(queued, 4)


print(run(3), sum(run.made.stats.cache_hits.values()))
"""

WHOLE_KERNEL = """
import numpy as np
from gearshift.plans.plan_tables import plan_tables
from gearshift.simulator.kernel import loop as kernel
from gearshift.simulator.simulate import simulate_tables
from tests.conformance.small import small_gear, small_plan, small_workload

placed = {"a0": "d0"}
plan = small_plan(placed, small_gear(placed, "a", largest=4, minimum=3, wait_ms=5))
workload = small_workload([0, 0, 0])
run = simulate_tables(plan_tables(plan), np.array([[0, 1, 2, 3, 4]]), np.ones((1, 3)), workload)
print(int(run.batches[0].argmax()), sum(kernel.run.made.stats.cache_hits.values()))
"""


class Options(NamedTuple):
    extra: Any


def _choose_plain(options: Options, values: Any) -> Any:
    if options.extra is not None and values[0] > 0:
        return options.extra.upper()  # cannot be compiled, whatever `extra` is
    return values[0]


def test_functions_of_different_modules_are_kept_in_different_folders() -> None:
    for file in PACKAGE.rglob("*.py"):
        if "\n@compiled\n" in file.read_text():
            importlib.import_module(".".join(("gearshift", *file.relative_to(PACKAGE).with_suffix("").parts)))
    made = [each for each in _LARGE if each.py_func.__module__.startswith("gearshift.")]
    folders = {each.py_func.__module__: each._cache.cache_path for each in made}
    assert {"gearshift.simulator.kernel.loop", "gearshift.simulator.engines.kernel.loop"} <= set(folders)
    assert len(set(folders.values())) == len(folders), folders


def test_code_for_a_field_that_is_none_by_type_is_not_compiled() -> None:
    choose: Any = apart(_choose_plain)

    @numba.njit
    def call(options: Options, values: Any) -> Any:
        return choose(options, values)

    assert call(by_address(Options(None)), np.array([3])) == 3
    with pytest.raises(numba.TypingError):
        call(by_address(Options(1.5)), np.array([3]))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, to be changed."""
    copy = tmp_path / "src" / "gearshift"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def change_a_policy(package: Path, new: str) -> None:
    batching = package / "policies" / "batching.py"
    text = batching.read_text()
    assert text.count(OLD) == 1
    batching.write_text(text.replace(OLD, new))


def run_in_a_new_process(package: Path, script: Path) -> tuple[int, int]:
    """What the script prints: a batch's size, and how often its kernel was loaded from the cache.

    Only where it is compiled standard error says so.
    """
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(package.parent), str(Path(__file__).parents[3])]),
        "XDG_CACHE_HOME": str(package.parent.parent / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    size, hits = done.stdout.split()
    assert ("compiling the simulator, once" in done.stderr) == (int(hits) == 0)
    return int(size), int(hits)


def assert_the_cache_sees_a_changed_policy(package: Path, script: Path) -> None:
    assert run_in_a_new_process(package, script) == (3, 0)
    assert run_in_a_new_process(package, script) == (3, 1)
    change_a_policy(package, "# a comment\n    " + OLD)
    assert run_in_a_new_process(package, script) == (3, 1)
    change_a_policy(package, "return 1")
    assert run_in_a_new_process(package, script) == (1, 0)


def test_a_changed_policy_is_compiled_anew_and_an_unchanged_one_loaded_from_the_cache(package: Path) -> None:
    script = package / "simulator" / "little_kernel.py"
    script.write_text(LITTLE_KERNEL)
    assert_the_cache_sees_a_changed_policy(package, script)


@pytest.mark.long
def test_another_installation_of_the_same_sources_loads_what_the_first_compiled(package: Path) -> None:
    other = package.parent.parent / "other" / "gearshift"
    (package / "simulator" / "little_kernel.py").write_text(LITTLE_KERNEL)
    shutil.copytree(package, other)
    assert run_in_a_new_process(package, package / "simulator" / "little_kernel.py") == (3, 0)
    assert run_in_a_new_process(other, other / "simulator" / "little_kernel.py") == (3, 1)


@pytest.mark.long
def test_the_simulator_follows_a_changed_policy_though_its_kernel_is_cached(package: Path, tmp_path: Path) -> None:
    (tmp_path / "whole_kernel.py").write_text(WHOLE_KERNEL)
    assert_the_cache_sees_a_changed_policy(package, tmp_path / "whole_kernel.py")


def test_a_process_waits_where_another_compiles_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    twice: Any = compiled(_twice_plain)
    with (folder_of(twice) / "lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(twice, 4)
            while COMPILING not in caplog.text:
                time.sleep(0.001)
            assert not result.done()
            fcntl.flock(held, fcntl.LOCK_UN)
            assert result.result() == 8


def test_where_nothing_can_be_kept_functions_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compiled(_twice_plain)(4) == 8


def _twice_plain(x: int) -> int:
    return 2 * x
