"""Constraints that hold each dependency at its lowest version in `pyproject.toml`: `python tests/lowest.py`."""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
TOOLS = ("demo", "llm-demo", "test", "test-long")
"""Extras whose versions nobody else depends on."""


def constraints() -> list[str]:
    """`name==version` for what users install; the tools of the tests are not among them."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *(one for name in extras if name not in TOOLS for one in extras[name])]
    return sorted({f"{name}=={version}" for name, version in (lowest(one) for one in asked)})


def lowest(dependency: str) -> tuple[str, str]:
    """The name and the lowest version of a dependency such as `msgspec>=0.19,<1`."""
    found = re.match(r"([\w.-]+)>=([\d.]+)", dependency)
    if found is None:
        raise SystemExit(f"{PROJECT.name}: {dependency!r} has no lowest version; write it as NAME>=VERSION")
    return found[1], found[2]


if __name__ == "__main__":
    sys.stdout.write("\n".join([*constraints(), ""]))
