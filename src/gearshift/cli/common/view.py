"""How results are shown in a terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gearshift.cli.common.output import Output
from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan
from gearshift.verbs.kinds.kind import Inputs


class Planned(NamedTuple):
    """What `plan` found: a plan or several, where they were written, what they were made from, and for what."""

    found: Any
    out: Path
    planning_s: float
    paths: Sequence[Path]
    profile: Any
    traces: Any
    asked: Mapping[str, Any]


class Compared(NamedTuple):
    """A comparison, with what it was made of."""

    found: Any
    paths: Sequence[Path]
    profile: Any
    traces: Any
    asked: Mapping[str, Any]


class Page(NamedTuple):
    """The title, note and sections of a page."""

    title: str
    note: str
    sections: Sequence[Any]


class View:
    """Shows any result as it stands in `--json`; kinds show theirs as tables and sentences."""

    def plan(self, output: Output, planned: Planned) -> None:
        self._as_it_is(output, planned.found)

    def frontier(self, output: Output, planned: Planned) -> None:
        self._as_it_is(output, planned.found)

    def comparison(self, output: Output, compared: Compared) -> None:
        self._say(output, compared.found)

    def comparison_csv(self, compared: Compared) -> str:
        raise InvalidInput("a comparison of this kind has no table for --csv", remedy="leave it out")

    def grid_csv(self, compared: Compared) -> str:
        raise InvalidInput("a comparison of this kind has no grid of fewest devices", remedy="leave --grid-csv out")

    def comparison_page(self, compared: Compared) -> Page:
        raise InvalidInput("a comparison of this kind has no page", remedy="leave --out out")

    def explanation(self, output: Output, found: Any, inputs: Inputs) -> None:
        self._say(output, found)

    def simulation(self, output: Output, run: Any, inputs: Inputs, *, slo_s: float | None) -> None:
        self._as_it_is(output, run)

    def difference(self, output: Output, found: Any, plans: Sequence[GearPlan]) -> None:
        self._say(output, found)

    def inspected(self, output: Output, found: Any, path: Path) -> None:
        self._as_it_is(output, found)

    def profiled(self, output: Output, made: Any, out: Path) -> None:
        self._as_it_is(output, made)

    def replayed(self, output: Output, run: Any, target: str) -> None:
        """Show what was measured, of one pipeline or by pipeline."""
        self._as_it_is(output, run)

    def validated(self, output: Output, run: Any) -> None:
        """Show one pipeline's run."""
        self._say(output, run.as_json())

    def _as_it_is(self, output: Output, found: Any) -> None:
        output.json(found)
        self._say(output, found)

    def _say(self, output: Output, found: Any) -> None:
        """What `--json` has already, by the verb itself."""
        output.say(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
