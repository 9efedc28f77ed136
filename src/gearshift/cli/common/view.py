"""How results are shown in a terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from gearshift.cli.common.output import Output
from gearshift.gear import GearPlan
from gearshift.verbs.kinds.kind import Inputs


class View:
    """Shows any result as it stands in `--json`; kinds show theirs as tables and sentences."""

    def explanation(self, output: Output, found: Any, inputs: Inputs) -> None:
        self._as_it_is(output, found)

    def simulation(self, output: Output, run: Any, inputs: Inputs, *, slo_s: float | None) -> None:
        self._as_it_is(output, run)

    def difference(self, output: Output, found: Any, plans: Sequence[GearPlan]) -> None:
        self._as_it_is(output, found)

    def inspected(self, output: Output, found: Any, path: Path) -> None:
        self._as_it_is(output, found)

    def profiled(self, output: Output, made: Any, out: Path) -> None:
        self._as_it_is(output, made)

    def replayed(self, output: Output, run: Any, target: str) -> None:
        """Show what was measured, of one pipeline or by pipeline."""
        self._as_it_is(output, run)

    def validated(self, output: Output, run: Any) -> None:
        """Show one pipeline's run, which `--json` has already."""
        output.say(msgspec.json.format(msgspec.json.encode(run.as_json()), indent=2).decode())

    def _as_it_is(self, output: Output, found: Any) -> None:
        output.json(found)
        output.say(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
