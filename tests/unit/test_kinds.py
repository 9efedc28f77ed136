"""Verbs, command line, reporting and serving never ask which kind of engine they have: its object knows."""

import ast
from collections.abc import Iterator
from pathlib import Path

import gearshift

PACKAGE = Path(gearshift.__file__).parent
ROOMS = "verbs", "cli", "reporting", "serving"
OF_KINDS = "verbs/kinds", "verbs/rows", "verbs/tokens", "verbs/planning", "cli/views/rows", "cli/views/tokens"
"""Where a kind's own code is."""

ASKING = {
    *("is_language_plan", "is_language_profile", "is_language_project", "is_of_language", "plans_language"),
    *("holds_profiles", "has_pipelines", "has_several", "has_language_records"),
}
"""Functions that tell kinds apart, or how many pipelines and nodes a profile has."""
TYPES = {"LanguageProfile", "Profiles", "LanguageSimulation", "StreamReplay", "LanguageValidation"}
"""Types that `isinstance` would tell kinds apart by."""
OWN = "_of_language"
"""The end of names of functions that only one kind has."""

STILL = set[str]()
"""Modules that still ask."""


def asked_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.FunctionDef):
            names = [node.name]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            yield from (one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name) and one.id in TYPES)
            continue
        else:
            continue
        yield from (name for name in names if name in ASKING or name.endswith(OWN))


def asking() -> dict[str, list[str]]:
    """What asks for the kind, by module."""
    found = {}
    for room in ROOMS:
        for path in (PACKAGE / room).rglob("*.py"):
            place = path.relative_to(PACKAGE).as_posix()
            if not place.startswith(OF_KINDS) and (asked := [*asked_in(ast.parse(path.read_text()))]):
                found[place] = asked
    return found


def test_no_module_but_those_of_a_kind_asks_for_it() -> None:
    found = asking()
    assert not {place: asked for place, asked in found.items() if place not in STILL}
    assert set(found) >= STILL, "take what no longer asks off the list"


def test_every_way_of_asking_is_seen() -> None:
    source = """
from gearshift.plans.served import is_language_plan, require_served
def report_of_language(): ...
if isinstance(profile, (str, LanguageProfile)) or isinstance(profile, Path):
    pass
"""
    assert [*asked_in(ast.parse(source))] == ["is_language_plan", "report_of_language", "LanguageProfile"]
