"""How results are shown in a terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Planned(NamedTuple):
    """Where plans were written, what they were made from, and for what."""

    out: Path
    planning_s: float
    paths: Sequence[Path]
    profile: Any
    traces: Any
    asked: Mapping[str, Any]


class Compared(NamedTuple):
    """The inputs of a comparison."""

    paths: Sequence[Path]
    profile: Any
    traces: Any
    asked: Mapping[str, Any]


class Page(NamedTuple):
    """The title, note and sections of a page."""

    title: str
    note: str
    sections: Sequence[Any]
