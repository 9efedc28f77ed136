"""Plans, profiles and results of language models in a terminal; each verb's module is imported when it is needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gearshift.cli.common.output import Output
from gearshift.cli.common.view import Compared, Page, Planned, View
from gearshift.gear import GearPlan
from gearshift.verbs.kinds.kind import Inputs


class TokensView(View):
    def plan(self, output: Output, planned: Planned) -> None:
        from gearshift.cli.views.tokens import plan

        plan.show(output, planned)

    def frontier(self, output: Output, planned: Planned) -> None:
        from gearshift.cli.views.tokens import plan

        plan.show_frontier(output, planned)

    def comparison(self, output: Output, compared: Compared) -> None:
        from gearshift.cli.views.tokens import compare

        compare.show(output, compared)

    def comparison_csv(self, compared: Compared) -> str:
        from gearshift.cli.views.tokens import compare

        return compare.as_csv(compared.found)

    def comparison_page(self, compared: Compared) -> Page:
        from gearshift.cli.views.tokens import compare

        return compare.page(compared)

    def explanation(self, output: Output, found: Any, inputs: Inputs) -> None:
        from gearshift.cli.views.tokens import explain

        explain.show(output, found, inputs.plan, inputs.records)

    def simulation(self, output: Output, run: Any, inputs: Inputs, *, slo_s: float | None) -> None:
        from gearshift.cli.views.tokens import simulate

        simulate.show(output, run, inputs.plan, inputs.records)

    def difference(self, output: Output, found: Any, plans: Sequence[GearPlan]) -> None:
        from gearshift.cli.views.tokens import diff

        diff.show(output, found, plans[0].pipeline)

    def inspected(self, output: Output, found: Any, path: Path) -> None:
        from gearshift.cli.views.tokens import inspect

        inspect.show(output, found, path)

    def profiled(self, output: Output, made: Any, out: Path) -> None:
        from gearshift.cli.views.tokens import profile

        profile.show(output, made, out)

    def replayed(self, output: Output, run: Any, target: str) -> None:
        from gearshift.cli.views.tokens import replay

        replay.show(output, run, target)

    def validated(self, output: Output, run: Any) -> None:
        from gearshift.cli.views.tokens import replay

        replay.show_validation(output, run)
