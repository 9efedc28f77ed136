"""Serve a plan, replay a trace against it, simulate the same requests, and compare."""

from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Notice, noted
from gearshift.verbs.common.options import Backend, ProfileOfPlan, ProjectOfPlan
from gearshift.verbs.common.sending import SendingOptions, Sent, Traces, by_pipeline, given_of, of_only
from gearshift.verbs.kinds.registry import kind_of_plan
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.verbs.rows.validate import Validation
    from gearshift.verbs.tokens.validate import LanguageValidation

    Validated: TypeAlias = Validation | LanguageValidation


def validate(
    plan: PathLike,
    trace: Trace | PathLike | Traces | None = None,
    *,
    url: str | None = None,
    backend: Backend = "local",
    profile: ProfileOfPlan = None,
    project: ProjectOfPlan = None,
    seed: int | None = None,
    server_cores: frozenset[int] | None = None,
    generator_cores: frozenset[int] | None = None,
    progress: Sent | None = None,
    notice: Notice = noted,
    **how: Unpack[SendingOptions],
) -> "Validated | dict[str, Validated]":
    """Serve a plan file in another process, replay a trace against it, and simulate the same.

    The trace is by default the plan's. Server and simulation get the same samples at the instants
    at which they were sent, on the server's clock, with the same bound on waiting requests, and
    count lateness by the plan's latency objective. While load is generated this process keeps to
    `generator_cores`, by default those that the devices leave; `how` are options of `replay`.
    Of a graph, both serve recorded tuples, and one function judges both by the items of each.

    A plan of several pipelines is served with all their traces at once, of which `trace` may be a
    mapping; results are then by pipeline, and batches and devices those of all together.

    Of language models the server may be one that runs, at `url` with `api_key`. Emulated engines
    take the profile's times. Lone requests before and after tell whether engines are as profiled, and
    whether they changed meanwhile. Requests longer than every context of the plan's engines are
    neither sent nor simulated, of which `notice` hears. Raises `InvalidInput`, before any is sent,
    where an engine's memory could not hold one of the others.
    """
    kind, shape, _ = kind_of_plan(plan)
    of_kind: dict[str, Any] = {"url": url, "server_cores": server_cores, "generator_cores": generator_cores}
    kind.require_supported("validate", shape, of_kind | given_of(how))
    runs = kind.validate(
        plan,
        by_pipeline(trace),
        backend=backend,
        profile=profile,
        project=project,
        seed=seed,
        progress=progress,
        notice=notice,
        **of_kind,
        **how,
    )
    found: Validated | dict[str, Validated] = of_only(runs, trace)
    return found
