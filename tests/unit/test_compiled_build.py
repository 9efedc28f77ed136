"""What a compiled build may hold: the rules that mypyc sets to modules, and that tests of plain Python cannot see."""

import ast
import re
import tomllib
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from click.testing import CliRunner

import gearshift
import gearshift.runtime.router.router
from gearshift.cli.main import main_group

ROOT = Path(__file__).parents[2]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
COMPILED = [ROOT / path.lstrip("/") for path in WHEEL["hooks"]["mypyc"]["include"]]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def classes(path: Path) -> list[ast.ClassDef]:
    return [node for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)]


def bases(of: ast.ClassDef) -> set[str]:
    return {name for base in of.bases for name in ast.unparse(base).split(".")}


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.stem)
def test_no_compiled_module_has_structs_whose_options_would_be_lost(path):
    assert not [each.name for each in classes(path) if "Struct" in bases(each)]


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.stem)
def test_no_compiled_coroutine_waits_in_a_finally_which_would_raise_its_callers_error_again(path):
    coroutines = [node for node in ast.walk(tree(path)) if isinstance(node, ast.AsyncFunctionDef)]
    finals = [node.finalbody for each in coroutines for node in ast.walk(each) if isinstance(node, ast.Try)]
    waits = (ast.Await, ast.AsyncWith, ast.AsyncFor)
    assert not [node.lineno for last in chain(*finals) for node in ast.walk(last) if isinstance(node, waits)]


def test_what_inherits_from_a_compiled_class_is_compiled_too():
    compiled = {each.name for path in COMPILED for each in classes(path) if "Protocol" not in bases(each)}
    named = re.compile(rf"\bclass \w+\([^:]*\b({'|'.join(compiled)})\b")
    others = [p for p in (ROOT / "src").rglob("*.py") if p not in COMPILED and named.search(p.read_text())]
    assert not [(path.name, each.name) for path in others for each in classes(path) if bases(each) & compiled]


def test_policies_stay_python_which_the_simulator_compiles():
    assert not [path for path in COMPILED if path.parent.name == "policies"]


def test_the_version_says_which_build_it_is():
    compiled = not gearshift.runtime.router.router.__file__.endswith(".py")
    told = CliRunner().invoke(main_group, ["--version"]).output
    assert told.rstrip().endswith(f"version {gearshift.__version__}" + (", compiled" if compiled else ""))


def test_no_compiled_module_lies_beside_its_source_where_it_would_run_in_its_place():
    assert not list((ROOT / "src").rglob("*.so")), "delete it: `make wheel` compiles a copy"
