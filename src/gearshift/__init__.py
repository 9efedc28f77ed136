"""Gearshift serves machine-learning models as cascades that shift gears with load.

The verbs of the command line are functions here: `init`, `profile`, `plan`, `simulate`, `inspect`,
`explain`, `diff`, `compare`, `report`, `serve`, `replay`, `validate`, `doctor`. `Client` and
`AsyncClient` send requests to a server; `map` and `query` run whole tables through a plan, and
`gearshift.sql` puts one into DuckDB. `__init__.pyi` lists all names, for type checkers and for
this module, which imports each at its first use, so that `import gearshift` stays light.
"""

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from gearshift.display import draw_with

__version__ = "0.1.0"


@cache
def _homes() -> dict[str, str]:
    """The module of each public name."""
    stub = Path(__file__).with_suffix(".pyi").read_text()
    return {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as", stub, re.MULTILINE)}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_homes())
    if name.startswith("__") or name not in _homes():
        raise AttributeError(f"module 'gearshift' has no attribute {name!r}")
    return getattr(import_module(_homes()[name]), name)


def __dir__() -> list[str]:
    return sorted({*_homes(), *(name for name in globals() if name.startswith("__"))})


def _in_notebook(shown: object) -> str:
    from gearshift.reporting.notebooks import html_of

    return html_of(shown)


draw_with(_in_notebook)
