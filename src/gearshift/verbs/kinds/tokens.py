"""Language models behind engines, which take and make tokens."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gearshift.gear import GearPlan
from gearshift.models.language_config import is_language_project
from gearshift.plans.plan_diff import PlanDiff, diff
from gearshift.plans.plan_file import read_plan
from gearshift.plans.served import is_language_plan, require_language_plan
from gearshift.profiles.engines.contexts import answerable
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.engines.store import is_language_profile, read_language_profile
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Progress
from gearshift.verbs.kinds.kind import Inputs, Kind, Traces
from gearshift.verbs.tokens.inputs import language_workload, plan_and_language_profile

if TYPE_CHECKING:
    from gearshift.load_generator.language.stream_log import StreamReplay
    from gearshift.planner.language.compared.explain import LanguageExplanation
    from gearshift.simulator.engines.language_simulation import LanguageSimulation
    from gearshift.verbs.tokens.validate import LanguageValidation

CHATS = "language models"
OF_LOAD = "processes", "connections", "largest_lateness_s"
OF_SENDING = *OF_LOAD, "binary", "priority", "ca_file", "deadline_s"


class Tokens(Kind):
    name = "language models"
    shapes: ClassVar = {CHATS: "plans of language models"}
    lacks: ClassVar = {
        "": {
            "profile": dict.fromkeys(("cores", "core_share"), ""),
            "profile_from_records": {"raw_run_times": ""},
        },
        CHATS: {
            "replay": dict.fromkeys(
                (*OF_SENDING, "deadline_ms", "network", "request_kb", "uplink", "log", "slo_s", "devices"), ""
            ),
            "validate": dict.fromkeys((*OF_SENDING, "server_cores", "generator_cores"), ""),
            "explain": dict.fromkeys(("devices_too", "profiles", "joint"), ""),
            "simulate": dict.fromkeys(
                (
                    *("network", "request_kb", "slo_ms", "uplink", "scaler", "scaling", "scaler_cores"),
                    *("profiles", "joint", "most_waiting"),
                ),
                "",
            ),
        },
    }

    def has_plan(self, plan: GearPlan) -> bool:
        return is_language_plan(plan)

    def has_profile(self, profile: object) -> bool:
        if isinstance(profile, Sequence) and not isinstance(profile, str):
            return self.has_profile(profile[0])
        folder = profile if isinstance(profile, (str, Path)) else None
        return isinstance(profile, LanguageProfile) or (folder is not None and is_language_profile(folder))

    def has_project(self, project: Path) -> bool:
        return project.is_file() and is_language_project(project)

    def has_records(self, folder: Path) -> bool:
        return any(folder.glob("*.jsonl"))

    def inputs(self, plan: GearPlan | PathLike, *, profile: Any = None, **_: Any) -> Inputs:
        made, measured = plan_and_language_profile(plan, profile)
        return Inputs(plan, made, measured)

    def answerable(self, inputs: Inputs, traces: Traces) -> tuple[Traces, Sequence[str]]:
        name, engines = inputs.plan.name, engine_tables(inputs.plan, inputs.records).engines
        kept, left_out = answerable(traces[name], engines)
        return {name: kept}, left_out

    def simulate(self, inputs: Inputs, traces: Traces, *, seed: int | None = None, **_: Any) -> "LanguageSimulation":
        """Requests longer than the context of every model of the plan are left out."""
        from gearshift.simulator.engines.simulate_language import simulate_language

        arrivals = self.answerable(inputs, traces)[0][inputs.plan.name]
        workload = language_workload(inputs.records, arrivals, seed=seed)
        return simulate_language(engine_tables(inputs.plan, inputs.records), inputs.records, workload)

    def explain(self, inputs: Inputs, traces: Traces, *, progress: Progress, **_: Any) -> "LanguageExplanation":
        """Also what certainty is worth on the trace."""
        from gearshift.planner.language.compared.explain import explain_language

        return explain_language(inputs.plan, inputs.records, traces[inputs.plan.name], progress=progress)

    def inspect(self, path: Path) -> GearPlan | LanguageProfile:
        if path.is_dir():
            return read_language_profile(path)
        made = read_plan(path)
        if (path.parent / made.profile.path).is_dir():
            self.inputs(path)
        return made

    def diff(self, a: GearPlan, b: GearPlan) -> PlanDiff:
        for plan in (a, b):
            require_language_plan(plan)
        return diff(a, b)

    def profile(self, project: Path, **how: Any) -> LanguageProfile:
        from gearshift.verbs.tokens.profile import profile

        return profile(project, **how)

    def profile_from_records(self, folder: Path, **how: Any) -> LanguageProfile:
        from gearshift.verbs.tokens.profile import profile_from_records

        return profile_from_records(folder, **how)

    def replay(self, target: PathLike, traces: Mapping[str, Any], **how: Any) -> "dict[str, StreamReplay]":
        from gearshift.verbs.tokens.replay import replay

        return replay(target, traces, **how)

    def validate(self, plan: PathLike, traces: Mapping[str, Any], **how: Any) -> "dict[str, LanguageValidation]":
        from gearshift.verbs.tokens.validate import validate

        return validate(plan, traces, **how)
