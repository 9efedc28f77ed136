"""The cache trap: Numba's cache looks only at the kernel's own file and would keep an old policy silently."""

import ast
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

import gearshift
from gearshift.support.compiled import _LARGE, apart, sources_hash

PACKAGE = Path(gearshift.__file__).parent
POLICIES_AND_SIMULATOR = [file for folder in ("policies", "simulator") for file in (PACKAGE / folder).rglob("*.py")]
COMPILED_IN = [
    *sorted(str(file.relative_to(PACKAGE)) for file in POLICIES_AND_SIMULATOR),
    *("gear.py", "decisions.py", "clock.py", "request.py", "support/compiled.py", "caches/running/kernel.py"),
]
COMPILERS = {"inlined", "apart", "compiled", "called_by_address"}
OLD = "return queue_length if queue_length < largest_batch_size else largest_batch_size"

LITTLE_KERNEL = """
from gearshift.policies import batching
from gearshift.support.compiled import compiled, inlined

batch_size = inlined(batching.batch_size)


@compiled
def run(queued):
    return batch_size(queued, 4)


print(run(3), sum(run.stats.cache_hits.values()))
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
print(int(run.batches[0].argmax()), sum(kernel.run.stats.cache_hits.values()))
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

    assert call(Options(None), np.array([3])) == 3
    with pytest.raises(numba.TypingError):
        call(Options(1.5), np.array([3]))


def copied(folder: Path) -> Path:
    copy = folder / "src" / "gearshift"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, to be changed."""
    return copied(tmp_path)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy that tests leave as it was."""
    return copied(tmp_path_factory.mktemp("kept"))


def change_a_policy(package: Path) -> None:
    batching = package / "policies" / "batching.py"
    text = batching.read_text()
    assert text.count(OLD) == 1
    batching.write_text(text.replace(OLD, "return 1"))


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


def test_the_hash_is_the_same_for_the_same_sources(kept: Path) -> None:
    assert sources_hash(kept) == sources_hash(PACKAGE)


@pytest.mark.parametrize("file", COMPILED_IN)
def test_a_change_to_any_source_that_is_compiled_in_changes_the_hash(kept: Path, file: str) -> None:
    before, source = sources_hash(kept), (kept / file).read_bytes()
    try:
        (kept / file).write_bytes(source + b"# changed\n")
        assert sources_hash(kept) != before
    finally:
        (kept / file).write_bytes(source)


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


@cache
def imports_of(file: Path) -> dict[str, tuple[Path, str]]:
    """What a module imports from this package: by its name there, the file, and the name in it ("" for the file)."""
    found = {}
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "gearshift":
            folder = PACKAGE.joinpath(*node.module.split(".")[1:])
            for alias in node.names:
                module = (folder / alias.name).with_suffix(".py")
                source = folder.with_suffix(".py") if folder != PACKAGE else folder / "__init__.py"
                found[alias.asname or alias.name] = (module, "") if module.exists() else (source, alias.name)
    return found


def used(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Names that a definition reads, each with the attribute of it, but for its types, which do not count."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.Attribute) and isinstance(child.value, ast.Name):
                yield child.value.id, child.attr
            elif isinstance(child, ast.Name):
                yield child.id, ""
            elif isinstance(child, ast.AST):
                yield from used(child)


def follow(file: Path, name: str, seen: set[tuple[Path, str]]) -> None:
    """Add what `name` in a module is made of."""
    if (file, name) in seen:
        return
    seen.add((file, name))
    imports = imports_of(file)
    for node in tree_of(file).body:
        if name in names_of(node):
            for other, attribute in used(node):
                source, within = imports.get(other, (file, other))
                follow(source, within or attribute, seen)
    if name in imports:
        follow(*imports[name], seen)


def names_of(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}


def compiled_functions() -> Iterator[tuple[Path, str]]:
    for file in PACKAGE.rglob("*.py"):
        for node in tree_of(file).body if "gearshift.support.compiled" in file.read_text() else ():
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    made = decorator.func if isinstance(decorator, ast.Call) else decorator
                    if isinstance(made, ast.Name) and made.id in COMPILERS:
                        yield file, node.name


def test_everything_that_compiled_code_reads_is_among_the_sources_that_the_hash_is_of() -> None:
    read: set[tuple[Path, str]] = set()
    for file, name in compiled_functions():
        follow(file, name, read)
    assert {"NEVER_NS", "METER_ALPHA", "Decision", "batch_size"} <= {name for _, name in read}
    assert {str(file.relative_to(PACKAGE)) for file, _ in read} <= set(COMPILED_IN)


def test_a_new_policy_changes_the_hash(package: Path) -> None:
    before = sources_hash(package)
    (package / "policies" / "another.py").write_text("")
    assert sources_hash(package) != before


def test_a_change_to_a_source_that_is_not_compiled_in_keeps_the_hash(package: Path) -> None:
    before = sources_hash(package)
    (package / "runtime" / "router.py").write_text("")
    assert sources_hash(package) == before


def assert_the_cache_sees_a_changed_policy(package: Path, script: Path) -> None:
    assert run_in_a_new_process(package, script) == (3, 0)
    assert run_in_a_new_process(package, script) == (3, 1)
    change_a_policy(package)
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
