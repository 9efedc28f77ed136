"""The sections of a page about a plan of language models."""

from typing import TYPE_CHECKING

from gearshift.planner.language.compared.explain import each_language_alone
from gearshift.reporting.language.page import tokens_sections, tokens_shown
from gearshift.verbs.common.inputs import Progress
from gearshift.verbs.kinds.kind import Inputs, Kind, Traces

if TYPE_CHECKING:
    from gearshift.reporting.drawing.page import Section


def sections(kind: Kind, inputs: Inputs, traces: Traces, *, progress: Progress) -> "list[Section | None]":
    plan, measured = inputs.plan, inputs.records
    if not traces:
        return tokens_sections(tokens_shown(plan, measured), measured)
    progress("simulating the plan", 0.0)
    run = kind.simulate(inputs, traces)
    alone = each_language_alone(plan, measured, traces[plan.name])
    return tokens_sections(tokens_shown(plan, measured, run, alone), measured)
