"""The options of `plan` and `compare`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypedDict

from gearshift.gear import GearPlan, SourceFile
from gearshift.hardware import Hardware
from gearshift.objective import Metric, Policy, Scope
from gearshift.planner.space.request import RANGES, LoadDistribution
from gearshift.plans.prices import AS_OF, PER_HOUR
from gearshift.profiles.profile import Profile
from gearshift.support.files import PathLike
from gearshift.verbs.common.options import GIBIBYTES, MILLISECONDS, SECONDS, Option
from gearshift.workload import Trace

TIMES: dict[str, Metric] = {"ttft_s": "ttft", "per_token_s": "per_token", "total_s": "total"}
"""The times of language models, and what an objective calls them."""

ByOperator = Mapping[str, float]
"""A number for each operator."""


class SearchOptions(TypedDict, total=False):
    """How planners search.

    `percentile` of requests must be within a latency (default 0.95). `seed` is that of everything
    that is drawn.
    """

    percentile: float
    scope: Annotated[
        Scope,
        Option(
            "Where the objective must hold: in every load range and on the trace, or on the trace alone.",
            default="every-range",
        ),
    ]
    load: Annotated[
        LoadDistribution | None,
        Option("How often load ranges are taken to be visited [default: the planner's choice]."),
    ]
    budget_s: Annotated[
        float | None,
        Option("End a search after about this many seconds, with the best plan so far.", unit=SECONDS),
    ]
    ranges: Annotated[int, Option("How many load ranges.", default=RANGES)]
    max_qps: Annotated[float | None, Option("The top of the load ranges, in requests per second.")]
    least_margin: Annotated[
        float | None,
        Option("Plan every range for at least this multiple of its load [default: 1.15; 0.5 with --scope trace]."),
    ]
    memory_bytes: Annotated[
        int | None,
        Option("Memory of each device; by default enough for every model.", "--memory-gib", unit=GIBIBYTES),
    ]
    price_per_hour: Annotated[
        str | float | None,
        Option(
            f"What each device costs for an hour: a number, or one of {', '.join(PER_HOUR)} for its price of {AS_OF} "
            "[default: a file's own, or none: then no cost is told].",
            metavar="NUMBER|KIND",
        ),
    ]
    seed: int


class DeviceOptions(TypedDict, total=False):
    """The devices to plan for, or the cores of one host."""

    devices: Annotated[
        int | Hardware | PathLike | None,
        Option(
            "How many devices like the profiled one, or a JSON or TOML file that lists devices [default: 1; the fewest"
            " that are enough where both a latency and an accuracy are given].",
            metavar="NUMBER|FILE",
        ),
    ]
    cores: Annotated[
        int | None,
        Option(
            "In place of devices, a host with this many cores, which every load range divides among its models: the"
            " fewest core-seconds that keep both a latency and an accuracy."
        ),
    ]


class ObjectiveOptions(TypedDict, total=False):
    """The objective: `percentile` of requests within `latency_s`, or `accuracy`.

    The plan names its profile and its trace as `profile_source` and `trace_source` say.
    """

    latency_s: "float | ByOperator | None"
    accuracy: Annotated[
        "float | ByOperator | None",
        Option("The accuracy that must be reached, from 0 to 1; NAME=0.9 for one of several operators."),
    ]
    confidence: Annotated[
        float | None, Option("How sure the accuracy must be: its lower confidence bound must reach it.")
    ]
    median_s: Annotated[
        float | None, Option("Half of the requests must be within this, too.", "--p50-ms", unit=MILLISECONDS)
    ]
    profile_source: "SourceFile | Mapping[str, SourceFile] | None"
    trace_source: "SourceFile | Mapping[str, SourceFile] | None"


class LanguageOptions(TypedDict, total=False):
    """The times that `percentile` of the answers of language models keep, and the unit of their load."""

    ttft_s: Annotated[
        float | None,
        Option(
            "For language models: 95 % of first tokens must come within this many milliseconds.",
            "--ttft-p95-ms",
            unit=MILLISECONDS,
        ),
    ]
    per_token_s: Annotated[
        float | None,
        Option("As --ttft-p95-ms, for the mean time between tokens.", "--per-token-p95-ms", unit=MILLISECONDS),
    ]
    total_s: Annotated[
        float | None,
        Option("As --ttft-p95-ms, for the time to the last token.", "--total-p95-ms", unit=MILLISECONDS),
    ]
    metric: Annotated[
        Literal["ttft", "per_token", "total"] | None,
        Option("For language models, with --frontier or --accuracy alone: the time that counts [default: ttft]."),
    ]
    load_unit: Annotated[
        Literal["drain_s", "outstanding_requests", "queued_tokens"] | None,
        Option("For language models: the outstanding work by which gears are chosen [default: drain_s]."),
    ]
    memory_share: Annotated[
        float | None,
        Option("For language models: the share of a device's memory that engines use [default: 0.9]."),
    ]


class PolicyOptions(TypedDict, total=False):
    """The policies of a plan."""

    policy: Annotated[
        Policy,
        Option(
            "Gears as in the papers; or rows are refined while there is time; or the better of the two plans.",
            default="gears",
        ),
    ]


class SeveralOptions(TypedDict, total=False):
    """Of several operators: what an accuracy point is worth, and a plan whose pipelines stay as they are."""

    worth: ByOperator | None
    beside: GearPlan | PathLike | None
    beside_profiles: Mapping[str, Profile] | None
    beside_traces: Mapping[str, Trace] | None


class GraphOptions(TypedDict, total=False):
    """Of a pipeline of several nodes: which one, how its nodes choose, and what is certified of its answers."""

    pipeline: Annotated[str | None, Option("The pipeline to plan, of a profile that has several.")]
    budgets: Annotated[
        Literal["equal", "proportional"] | None,
        Option(
            "For a pipeline, a baseline: each node takes the best model within its share of the time left, which is "
            "equal for all nodes of a path, or in proportion to their slowest models."
        ),
    ]
    without_replanning: Annotated[
        bool,
        Option(
            "For a pipeline: one cascade for each node and gear, none chosen by the time that is left.", default=False
        ),
    ]
    run_deviation: float
    recall: Annotated[float | None, Option("Certify that this share of a pipeline's answers --positive is found.")]
    precision: Annotated[float | None, Option("Certify that this share of a pipeline's answers --positive is right.")]
    positive: Annotated[str | None, Option("The class that --recall and --precision are of.", metavar="CLASS")]


class PlanOptions(
    DeviceOptions,
    ObjectiveOptions,
    PolicyOptions,
    SearchOptions,
    LanguageOptions,
    SeveralOptions,
    GraphOptions,
    total=False,
):
    """The options of `plan` and of `plan_frontier`."""


class CompareOptions(SearchOptions, total=False):
    """The options of `compare`: how planners search, the pipeline of several, and limits of language models."""

    pipeline: str | None
    policy: Policy
    ttft_s: Sequence[float] | None
    per_token_s: Sequence[float] | None
    total_s: Sequence[float] | None


OF_SEVERAL = tuple(SeveralOptions.__annotations__)
OF_GRAPHS = tuple(GraphOptions.__annotations__)
OF_TOKENS = tuple(LanguageOptions.__annotations__)
