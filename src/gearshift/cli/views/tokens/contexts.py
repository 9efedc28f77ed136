"""Say which requests of a trace no model can hold."""

from collections.abc import Sequence

from gearshift.cli.common.output import Output
from gearshift.profiles.engines.contexts import answerable
from gearshift.profiles.engines.engine_profile import EngineProfile
from gearshift.workload import Trace


def answerable_and_told(output: Output, trace: Trace, engines: Sequence[EngineProfile]) -> Trace:
    kept, left_out = answerable(trace, engines)
    for told in left_out:
        output.say(told)
    return kept
