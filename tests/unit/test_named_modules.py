"""Text that names a module as `room/module` names one that is there."""

import re
from collections.abc import Iterator
from pathlib import Path

import gearshift

PACKAGE = Path(gearshift.__file__).parent
ROOT = Path(__file__).parents[2]
HISTORY = {"log.md", "names.md"}
NAMED = re.compile(r"`((?:[a-z_0-9]+/)+[a-z_0-9]+(?:\.py)?)(?:\.[A-Z]\w*|\.[a-z_]+)?`")
ROOMS = {folder.name for folder in PACKAGE.rglob("*") if folder.is_dir() and folder.name != "__pycache__"}
ROOMS_WITH_ROOMS = ("runtime", "serving", "planner", "policies", "caches", "cli", "simulator")
NO_MODULES = {"caches/exploration", "requests/s"}
"""Folders that users have, and units."""


def texts() -> Iterator[Path]:
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))
    yield from (path for path in (ROOT / "docs").rglob("*.md") if path.name not in HISTORY)
    yield from PACKAGE.rglob("*.py")


def is_there(name: str) -> bool:
    """Whether the package, or a room of it, has such a module, folder or other file."""
    places = [PACKAGE, ROOT / "benchmarks", *(PACKAGE / room for room in ROOMS_WITH_ROOMS)]
    return any((place / name).exists() or any(place.glob(f"{name}.*")) for place in places)


def test_every_named_module_is_there() -> None:
    gone = []
    for text in texts():
        named = {name.removeprefix("gearshift/") for name in NAMED.findall(text.read_text())} - NO_MODULES
        gone += [(text.name, name) for name in named if name.split("/")[0] in ROOMS and not is_there(name)]
    assert not gone


def test_a_module_that_is_gone_is_seen() -> None:
    assert NAMED.findall("`runtime/router.Router`, `serving/http.py` and `a.py`") == [
        "runtime/router",
        "serving/http.py",
    ]
    assert not is_there("serving/v2_json")
    assert not is_there("serving/http.py")
