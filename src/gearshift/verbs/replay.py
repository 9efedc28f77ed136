"""Send a trace to a server, and measure."""

from typing import TYPE_CHECKING, Annotated, Any, Unpack

from gearshift.objective import Objective
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.profiles.profile import Profile
from gearshift.support.files import PathLike
from gearshift.verbs.common.inputs import Notice, noted
from gearshift.verbs.common.options import MILLISECONDS, Option
from gearshift.verbs.common.sending import SendingOptions, Sent, Traces, by_pipeline, given_of, of_only, plan_at
from gearshift.verbs.kinds.registry import Found, kind_of_plan, kind_of_profile
from gearshift.workload import Trace

if TYPE_CHECKING:
    from gearshift.load_generator.language.stream_log import StreamReplay
    from gearshift.load_generator.replay_result import Replay
    from gearshift.traces.network import Uplink

    Replayed = Replay | StreamReplay


def replay(
    target: PathLike,
    trace: Trace | PathLike | Traces | None = None,
    profile: Annotated[
        Profile | LanguageProfile | PathLike | None,
        Option("The profile whose samples to send.  [default: profile, or the plan's]"),
    ] = None,
    *,
    project: Annotated[PathLike | None, Option("The gearshift.toml with the samples, where it has moved.")] = None,
    emulated: Annotated[bool, Option("The devices are emulated: send numbers of recorded samples.")] = False,
    model: Annotated[str | None, Option("The pipeline to send to, if not the one that the profile names.")] = None,
    slo_s: Annotated[
        float | None, Option("Requests answered later than this are late.", "--slo-ms", unit=MILLISECONDS)
    ] = None,
    objective: Objective | None = None,
    seed: int | None = None,
    devices: int = 0,
    progress: Sent | None = None,
    notice: Notice = noted,
    uplink: "Uplink | None" = None,
    **how: Unpack[SendingOptions],
) -> "Replayed | dict[str, Replayed]":
    """Send the trace to a server in an open loop; returns the figures and a log of every request.

    `target` is the URL of a V2 server (http, https, grpc, grpcs), or a plan file, which is then
    served within this process, without sockets; by default the trace is the one that this plan
    names. Samples come from the project that the profile names, or from `project`; with `emulated`
    they are the numbers of recorded samples, for emulated devices. `seed` draws samples and
    arrivals, by default as for the plan. The profile is by default the plan's, or the folder
    `profile`.

    With an `uplink` the trace holds the times of sending: requests reach the server when the
    network has carried them, stamped with their time of sending. The trace's deadlines are sent
    with its requests. `model` is the name that the pipeline has there, by default that of the
    profile's operator.

    Of a graph, whole recorded requests are sent; they are judged by the recorded quality of each
    model that answered an item, as in simulation.

    Traces by pipeline are sent on one clock, and so are all that a plan of several names, unless
    `model` is one of them; results are by pipeline then. Without `slo_s` answers are late by the
    objective of their pipeline, if a plan says what that is. The profile is then a folder with one
    of each name.

    With a profile of language models `target` is the URL of an OpenAI-compatible server, up to `/v1`.
    Prompts and the judge are those of `project`, asked as they were profiled; tokens of the trace
    then do not count. Without it prompts name their record, as emulated engines read it, and
    quality is that recorded of the model that the server names; where the trace has tokens, prompts
    are filled to their length, and answers are as long as there; those longer than every context of
    the profile are not sent, of which `notice` hears. The judge is tried on one more answer first.
    Latency is judged by `objective`. Raises `NoAnswer` where no server answers.
    """
    kind, shape, _ = kind_to_replay(target, profile, several=len(by_pipeline(trace)) > 1)
    of_kind: dict[str, Any] = {"slo_s": slo_s, "objective": objective, "devices": devices, "uplink": uplink}
    kind.require_supported("replay", shape, of_kind | given_of(how))
    runs = kind.replay(
        target,
        by_pipeline(trace),
        profile=profile,
        project=project,
        emulated=emulated,
        model=model,
        seed=seed,
        progress=progress,
        notice=notice,
        **of_kind,
        **how,
    )
    found: Replayed | dict[str, Replayed] = of_only(runs, trace)
    return found


def kind_to_replay(target: PathLike, profile: Any, *, several: bool) -> Found:
    """The kind of the plan at `target`; of a URL that of the profile, by default in the folder `profile`.

    `several` traces are by pipeline.
    """
    plan = plan_at(target)
    if plan is not None:
        return kind_of_plan(plan)
    found = kind_of_profile("profile" if profile is None else profile)
    return found._replace(shape=found.kind.shape_of([profile, profile])) if several else found
