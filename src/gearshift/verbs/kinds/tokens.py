"""Language models behind engines, which take and make tokens."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.planner.space.request import Shape
from gearshift.plans.plan_file import read_plan
from gearshift.plans.served import is_language_plan, require_language_plan
from gearshift.profiles.pipelines.profile_folder import Profiles
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import LANGUAGE_FILE
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Notice, Progress, silent
from gearshift.verbs.kinds.kind import Apart, Inputs, Kind, Need, Traces
from gearshift.verbs.planning.options import OF_GRAPHS, OF_SEVERAL, TIMES

if TYPE_CHECKING:
    from gearshift.load_generator.language.stream_log import StreamReplay
    from gearshift.planner.language.compared.compare import LanguageComparison
    from gearshift.planner.language.compared.explain import LanguageExplanation
    from gearshift.plans.plan_diff import PlanDiff
    from gearshift.profiles.engines.language_profile import LanguageProfile
    from gearshift.serving.openai.served import ServedLanguage
    from gearshift.simulator.engines.language_simulation import LanguageSimulation
    from gearshift.verbs.tokens.validate import LanguageValidation

CHATS: Shape = "one"
NO_MEASURED_RUN = "use `gearshift validate`, which shows what is predicted beside what is measured"
ALONE = "give its profile alone"
TIME_FLAGS = "--ttft-p95-ms, --per-token-p95-ms, --total-p95-ms"
OF_LOAD = "processes", "connections", "largest_lateness_s"
OF_SENDING = *OF_LOAD, "binary", "priority", "ca_file", "deadline_s"


class Tokens(Kind):
    name = "language models"
    engine = "tokens"
    shapes: ClassVar = {CHATS: "plans of language models"}
    lacks: ClassVar = {
        CHATS: {
            "profile": dict.fromkeys(("cores", "core_share"), ""),
            "profile_from_records": {"raw_run_times": ""},
            "plan": {
                **dict.fromkeys((*OF_SEVERAL, *OF_GRAPHS, "median_s", "policy"), ""),
                "latency_s": "give ttft_s, per_token_s or total_s, as answers are streamed",
                "p95_ms": f"give {TIME_FLAGS} in its place",
                "latency_ms": f"give {TIME_FLAGS} in its place",
                "confidence": "",
                "cores": "give devices",
                "load": "leave it out: ranges are of outstanding work, visited as on the trace",
                "max_qps": "leave it out: ranges are of outstanding work",
            },
            "compare": {
                "p95_ms": f"give one of {TIME_FLAGS}",
                "latency_ms": f"give one of {TIME_FLAGS}",
                "latencies_s": "give ttft_s, per_token_s or total_s",
                **dict.fromkeys(("percentile", "accuracies", "grid_csv", "pipeline", "policy", "load", "max_qps"), ""),
            },
            "replay": dict.fromkeys(
                (*OF_SENDING, "deadline_ms", "network", "request_kb", "uplink", "log", "slo_s", "devices"), ""
            ),
            "validate": dict.fromkeys((*OF_SENDING, "server_cores", "generator_cores"), ""),
            "report": {"replay": NO_MEASURED_RUN},
            "explain": dict.fromkeys(("devices_too", "profiles", "joint"), ""),
            "simulate": dict.fromkeys(
                (
                    *("network", "request_kb", "slo_ms", "uplink", "scaler", "scaling", "scaler_cores"),
                    *("scaler_period_s", "scaler_margin"),
                    *("profiles", "joint", "most_waiting"),
                ),
                "",
            ),
        },
    }

    needs: ClassVar = {
        CHATS: Need((*TIMES, "accuracy"), "no objective is given", f"give {TIME_FLAGS}, --accuracy or --frontier")
    }
    fewest_for = (CHATS,)
    apart: ClassVar = {
        CHATS: {
            "what_if": Apart(("frontier",)),
            "total_s": Apart(("ttft_s", "per_token_s")),
            "per_token_s": Apart(("ttft_s",)),
        }
    }

    def has_plan(self, plan: GearPlan) -> bool:
        return is_language_plan(plan)

    def has_profile(self, profile: object) -> bool:
        if isinstance(profile, Sequence) and not isinstance(profile, str):
            return self.has_profile(profile[0])
        if isinstance(profile, (str, Path)):
            return (Path(profile) / LANGUAGE_FILE).is_file()
        return not isinstance(profile, Profile | Profiles | Mapping)

    def has_project(self, project: Path) -> bool:
        from gearshift.models.language_config import is_language_project

        return project.is_file() and is_language_project(project)

    def has_records(self, folder: Path) -> bool:
        return any(folder.glob("*.jsonl"))

    def read_profile(self, shape: Shape, profiles: Sequence[Path]) -> "LanguageProfile":
        from gearshift.profiles.engines.store import read_language_profile

        require(len(profiles) == 1, "several profiles are given, and language models are planned alone", remedy=ALONE)
        return read_language_profile(profiles[0])

    def plan(
        self, shape: Shape, profile: Any, trace: Any, *, planner: str, progress: Progress, **asked: Any
    ) -> GearPlan | list[GearPlan]:
        from gearshift.verbs.planning import tokens

        only = profile[0] if isinstance(profile, Sequence) and not isinstance(profile, str) else profile
        return tokens.plan(only, trace, planner=planner, progress=progress, **asked)

    def compare(
        self,
        shape: Shape,
        profile: Any,
        trace: Any,
        *,
        progress: Progress,
        asked: dict[str, Any],
    ) -> "LanguageComparison":
        from gearshift.planner.language.compared.compare import CONTROL, compare_language
        from gearshift.verbs.planning.tokens import language_request
        from gearshift.verbs.tokens.inputs import language_profile

        names, devices = asked.pop("planners"), asked.pop("devices")
        asked = {
            name: one
            for name, one in asked.items()
            if name not in ("latencies_s", "accuracies", "baselines", "processes")
        }
        limits = {name: asked.pop(name, None) for name in TIMES}
        given = [name for name, each in limits.items() if each]
        require(
            len(given) == 1,
            f"{' and '.join(given)} are both given" if given else "no time is given",
            remedy=f"give one of {TIME_FLAGS}",
        )
        measured = language_profile(profile)
        requests = [
            language_request(measured, trace, devices=each, **{given[0]: limit_s}, **asked)
            for each in devices
            for limit_s in sorted(set(limits[given[0]] or ()))
        ]
        return compare_language(requests, names or [*self.planners(shape), CONTROL], progress=progress)

    def what_if(
        self, shape: Shape, made: GearPlan, profile: Any, trace: Any, *, progress: Progress, **asked: Any
    ) -> GearPlan:
        from gearshift.verbs.common.other_counts import with_other_counts

        others = asked | {"fewest": False}
        if any(asked.get(name) is not None for name in TIMES):
            others["accuracy"] = None

        def planned(count: int) -> Any:
            return self.plan(shape, profile, trace, progress=silent, **others | {"devices": count})

        return with_other_counts(made, planned, budget_s=asked.get("budget_s"), progress=progress)

    def inputs(self, plan: GearPlan | PathLike, *, profile: Any = None, **_: Any) -> Inputs:
        from gearshift.verbs.tokens.inputs import plan_and_language_profile

        made, measured = plan_and_language_profile(plan, profile)
        return Inputs(plan, made, measured)

    def answerable(
        self, records: "LanguageProfile", traces: Traces, *, plan: GearPlan | None = None
    ) -> tuple[Traces, Sequence[str]]:
        from gearshift.profiles.engines.contexts import answerable
        from gearshift.profiles.engines.engine_tables import engine_tables

        ((name, trace),) = traces.items()
        kept, left_out = answerable(trace, records.engines if plan is None else engine_tables(plan, records).engines)
        return {name: kept}, left_out

    def simulate(self, inputs: Inputs, traces: Traces, *, seed: int | None = None, **_: Any) -> "LanguageSimulation":
        """Requests longer than the context of every model of the plan are left out."""
        from gearshift.profiles.engines.engine_tables import engine_tables
        from gearshift.simulator.engines.simulate_language import simulate_language
        from gearshift.verbs.tokens.inputs import language_workload

        arrivals = self.answerable(inputs.records, traces, plan=inputs.plan)[0][inputs.plan.name]
        workload = language_workload(inputs.records, arrivals, seed=seed)
        return simulate_language(engine_tables(inputs.plan, inputs.records), inputs.records, workload)

    def explain(self, inputs: Inputs, traces: Traces, *, progress: Progress, **_: Any) -> "LanguageExplanation":
        """Also what certainty is worth on the trace."""
        from gearshift.planner.language.compared.explain import explain_language

        return explain_language(inputs.plan, inputs.records, traces[inputs.plan.name], progress=progress)

    def sections(
        self, path: PathLike, plan: GearPlan, traces: Traces, *, progress: Progress, notice: Notice, **how: Any
    ) -> list[Any]:
        from gearshift.verbs.kinds import tokens_page

        inputs = self.inputs(path, profile=how.get("profile"))
        kept, left_out = self.answerable(inputs.records, traces, plan=plan) if traces else (traces, ())
        for sentence in left_out:
            notice(sentence)
        return tokens_page.sections(self, inputs, kept, progress=progress)

    def inspect(self, path: Path) -> "GearPlan | LanguageProfile":
        if path.is_dir():
            from gearshift.profiles.engines.store import read_language_profile

            return read_language_profile(path)
        made = read_plan(path)
        if (path.parent / made.profile.path).is_dir():
            self.inputs(path)
        return made

    def diff(self, a: GearPlan, b: GearPlan) -> "PlanDiff":
        from gearshift.plans.plan_diff import diff

        for plan in (a, b):
            require_language_plan(plan)
        return diff(a, b)

    def profile(self, project: Path, **how: Any) -> "LanguageProfile":
        from gearshift.verbs.tokens.profile import profile

        return profile(project, **how)

    def profile_from_records(self, folder: Path, **how: Any) -> "LanguageProfile":
        from gearshift.verbs.tokens.profile import profile_from_records

        return profile_from_records(folder, **how)

    def replay(self, target: PathLike, traces: Mapping[str, Any], **how: Any) -> "dict[str, StreamReplay]":
        from gearshift.verbs.tokens.replay import replay

        return replay(target, traces, **how)

    def validate(self, plan: PathLike, traces: Mapping[str, Any], **how: Any) -> "dict[str, LanguageValidation]":
        from gearshift.verbs.tokens.validate import validate

        return validate(plan, traces, **how)

    def served(self) -> "ServedLanguage":
        from gearshift.serving.openai.served import LANGUAGE_MODELS

        return LANGUAGE_MODELS
