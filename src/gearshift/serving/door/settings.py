"""Settings of the server: the options of `gearshift serve`, with default, bounds and help."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from gearshift.errors import require
from gearshift.observability.logs import Form, Level
from gearshift.policies.cores.look_ahead import DEFAULT_MARGIN
from gearshift.request import Late
from gearshift.serving.door.deadline_headers import DEFAULT_TRUST_S
from gearshift.serving.door.origins import OwnNames, allowed_names

LostStage = Literal["degrade", "refuse"]
Replan = Literal["off", "offer", "swap"]
ScalerKind = Literal["exact", "paper", "static"]
ActuatorKind = Literal["processors", "kubernetes"]
OnOff = Literal["on", "off"]
Learns = Literal["auto", "on", "off"]
WarmUp = Literal["all", "few"]

DAY_S = 86_400


def _help(text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text)


def _bounded(holds: Callable[[float], bool], bounds: str, text: str) -> msgspec.Meta:
    return msgspec.Meta(description=f"{text[:-1]} ({bounds}).", extra={"holds": holds, "bounds": bounds})


def _from(least: float, most: float, text: str) -> msgspec.Meta:
    return _bounded(lambda number: least <= number <= most, f"{least} to {most}", text)


def _above_0(most: float, text: str) -> msgspec.Meta:
    return _bounded(lambda number: 0 < number <= most, f"more than 0, up to {most}", text)


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Address and bounds of the server; flags of `gearshift serve` derive from these fields."""

    host: Annotated[str, _help("The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, _from(0, 65535, "The port to listen on; 0 takes any free one.")] = 8000
    grpc_port: Annotated[
        int | None, _from(0, 65535, "The port to answer gRPC on; 0 takes any free one. Without it, none.")
    ] = None
    front_ends: Annotated[
        int, _from(1, 64, "Processes that answer HTTP on the port; with 1 the process of the router does so itself.")
    ] = 1
    most_waiting_requests: Annotated[
        int | None,
        _from(
            1,
            10**9,
            "Queued samples beyond which requests are refused; by default those that the plan answers within its "
            "latency objective.",
        ),
    ] = None
    most_waiting_bytes: Annotated[
        int | None,
        _from(
            1,
            1 << 50,
            "Bytes of unanswered requests beyond which requests are refused; by default a share of the memory there "
            "is, up to 256 MiB.",
        ),
    ] = None
    largest_body_bytes: Annotated[int, _from(1, (1 << 31) - 1, "The largest request body.")] = 64 << 20
    largest_header_bytes: Annotated[int, _from(1, 16 << 20, "The largest request head.")] = 64 << 10
    most_rows: Annotated[
        int | None, _from(1, 1 << 20, "The most rows of a request; by default as many as there is memory for.")
    ] = None
    most_tensors: Annotated[int, _from(1, 10**6, "The most inputs, and the most outputs, of a request.")] = 1024
    most_elements: Annotated[int, _from(1, 1 << 40, "The most elements of an input.")] = 1 << 24
    most_connections: Annotated[
        int,
        _from(1, 10**6, "Open connections, of HTTP and of gRPC each, beyond which others have to go or are refused."),
    ] = 10_000
    address_share: Annotated[
        float,
        _from(
            0.01, 1, "The share of these beyond which, where no room is left, an address's own silent ones go first."
        ),
    ] = 0.25
    most_grpc_calls: Annotated[int, _from(1, 10**6, "gRPC calls at work beyond which new ones are refused.")] = 10_000
    longest_read_s: Annotated[float, _above_0(DAY_S, "How long a client may take to send one request, in seconds.")] = (
        60.0
    )
    first_byte_s: Annotated[
        float, _above_0(DAY_S, "How long a new connection may stay silent, or take to agree on TLS keys, in seconds.")
    ] = 10.0
    keep_alive_s: Annotated[int, _from(1, DAY_S, "How long an idle connection is kept, in seconds.")] = 75
    drain_s: Annotated[
        float, _from(0, DAY_S, "How long accepted requests may take after SIGTERM or Ctrl-C, in seconds.")
    ] = 30.0
    longest_start_s: Annotated[float, _above_0(DAY_S, "How long models may take to load, in seconds.")] = 120.0
    warm_up: Annotated[
        WarmUp,
        _help("Before it serves, a model runs batches of all sizes that the plan allows, or of few: 1 and most."),
    ] = "all"
    longest_retry_s: Annotated[
        float, _from(0, DAY_S, "How long a request that lost its worker may wait for another, in seconds.")
    ] = 30.0
    shortest_hang_s: Annotated[
        float, _above_0(DAY_S, "How long a batch may take at least before its worker counts as hanging, in seconds.")
    ] = 10.0
    probe_s: Annotated[
        float, _from(0.01, DAY_S, "How often workers are looked at, and idle ones asked to answer, in seconds.")
    ] = 3.0
    awake_s: Annotated[
        float,
        _from(
            0,
            1,
            "Between batches a worker stays awake for an eighth of the last batch's time, at most this many seconds.",
        ),
    ] = 0.001
    lost_stage: Annotated[
        LostStage,
        _help(
            "Where no worker of a later stage lives, or its model gives no answer: give the answer of the stage "
            "before, or refuse the request."
        ),
    ] = "degrade"

    load_scaling: Annotated[
        OnOff,
        _help("Where accuracy alone was asked for, multiply measured load so that its distribution is the plan's."),
    ] = "on"
    slowdown: Annotated[
        Learns,
        _help(
            "Learn how much slower than profiled models run, choose gears by load times that where it is a tenth or "
            "more, and plan refinement by it: `auto` but for learned caches and cores that change."
        ),
    ] = "auto"
    load_window_s: Annotated[
        float | None,
        _from(
            6,
            DAY_S,
            "Compare load with the plan's over this many seconds; by default those of its trace, 300 to 86400.",
        ),
    ] = None
    replan: Annotated[
        Replan,
        _help("When load has drifted, plan anew in the background: not at all, to offer it, or to swap it in."),
    ] = "off"
    replan_longest_s: Annotated[float, _above_0(DAY_S, "How long planning anew may take, in seconds.")] = 900.0
    audit_share: Annotated[
        float, _from(0, 1, "The share of early answers that the strongest model is also asked, when there is slack.")
    ] = 0.01
    audit_seed: Annotated[int, _from(0, (1 << 63) - 1, "Seed of the choice of answers that are audited.")] = 0
    adapt: Annotated[
        str | None,
        _help("Models whose learned caches adapt to what they are asked, between commas; by default none."),
    ] = None
    adapt_share: Annotated[float, _from(0, 1, "The share of their answers that is learnt from.")] = 0.2
    adapt_window_s: Annotated[float, _from(1, 365 * DAY_S, "For how long samples are learnt from, in seconds.")] = (
        3600.0
    )
    adapt_interval_s: Annotated[float, _from(1, 365 * DAY_S, "How often learned caches are retrained, in seconds.")] = (
        900.0
    )
    adapt_fixed_classes: Annotated[
        bool, _help("Keep learned caches that adapt set for the classes of their build, whatever classes come.")
    ] = False
    cache_audit_share: Annotated[
        float,
        _from(
            0, 1, "The share of answers of learned caches that is compared with the whole model's, in the background."
        ),
    ] = 0.01
    late: Annotated[
        Late,
        _help("What becomes of a request that cannot be answered by its client's deadline: a late answer, or 504."),
    ] = "refuse"
    trust_clock_s: Annotated[
        float,
        _from(0, DAY_S, "How far x-request-start may be from this machine's clock to count, in seconds; 0: never."),
    ] = DEFAULT_TRUST_S

    scaler: Annotated[
        ScalerKind,
        _help(
            "How cores follow the load: exactly as needed, by Sponge's printed algorithm, or by the plan's gears alone."
        ),
    ] = "static"
    scaler_period_s: Annotated[float, _from(0.05, 3600, "How often a scaler chooses cores anew, in seconds.")] = 1.0
    scaler_cores: Annotated[
        int | None,
        _from(1, 4096, "The cores that replicas share with a scaler; by default all that the router leaves."),
    ] = None
    scaler_margin: Annotated[
        float | None,
        _from(
            -0.5,
            10,
            f"The share by which a scaler takes run times to be longer than profiled; by default {DEFAULT_MARGIN}.",
        ),
    ] = None
    actuator: Annotated[
        ActuatorKind,
        _help("What gives cores with a scaler: processors of this machine, or with them a resize of this pod."),
    ] = "processors"
    container: Annotated[
        str, _help("With --actuator kubernetes, the name of the container in its pod that is to be resized.")
    ] = "gearshift"
    core_share: Annotated[
        float,
        _from(0.05, 1, "How much of a processor a core is, as it was profiled; below 1, by quotas."),
    ] = 1.0

    log_level: Annotated[Level, _help("The least urgent messages that are logged; debug has a line per request.")] = (
        "info"
    )
    log_format: Annotated[Form, _help("Log lines for people, or one JSON object each.")] = "text"
    dashboard: Annotated[bool, _help("Have a live page at /dashboard.")] = True
    otel: Annotated[bool, _help("Send OpenTelemetry traces; the variables OTEL_... say where.")] = False

    address: Annotated[str, _help("With --backend ray, the cluster to serve on: auto, or HOST:PORT of its head.")] = (
        "auto"
    )
    advertise_host: Annotated[
        str | None,
        _help("With --backend ray, the address of this machine to which workers connect; by default Ray's own for it."),
    ] = None

    api_keys: Annotated[str | None, _help("A file of API keys, one per line; requests without one are refused.")] = None
    admin_keys: Annotated[
        str | None, _help("A file of keys that administration needs; with --api-keys alone it is closed.")
    ] = None
    allowed_hosts: Annotated[
        str | None,
        _help(
            "Further names, between commas, under which this server may be asked without --api-keys, and whose pages "
            "may ask it and read its answers, but not steer it; addresses, names without a dot and the name in --host "
            "always may."
        ),
    ] = None
    plans: Annotated[str | None, _help("A folder of plans that may be swapped in while serving.")] = None
    tls_certificate: Annotated[str | None, _help("A PEM file of the certificate chain, to serve HTTPS.")] = None
    tls_key: Annotated[str | None, _help("A PEM file of the certificate's key.")] = None

    def __post_init__(self) -> None:
        require_settings(msgspec.structs.asdict(self))

    @property
    def names(self) -> OwnNames:
        return OwnNames(self.host, allowed_names(self.allowed_hosts))


def require_settings(values: Mapping[str, Any], *, spelt: Callable[[str], str] = str) -> None:
    """Raise `InvalidInput` unless all settings are allowed; messages spell names by `spelt`."""
    require(bool(values["host"]), f"{spelt('host')} is empty", remedy="give an address, such as 127.0.0.1")
    for name, hint in get_type_hints(ServerSettings, include_extras=True).items():
        _require_allowed(spelt(name), values[name], hint)
    allowed_names(values["allowed_hosts"], where=spelt("allowed_hosts"))
    require(
        values["replan"] == "off" or values["plans"] is not None,
        f"{spelt('replan')} is {values['replan']!r}, but there is no folder for the plan that is made",
        remedy=f"give {spelt('plans')}",
    )
    require(
        values["scaler_margin"] is None or values["scaler"] != "static",
        f"{spelt('scaler_margin')} is given, and no scaler reads it",
        remedy=f"leave it out, or name a {spelt('scaler')}",
    )
    require(
        (values["tls_certificate"] is None) == (values["tls_key"] is None),
        f"of {spelt('tls_certificate')} and {spelt('tls_key')} one is missing",
        remedy="give both, or neither",
    )


def _require_allowed(name: str, value: object, hint: Any) -> None:
    kind, meta = get_args(hint)
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        require(value in choices, f"{name} is {value!r}", remedy=f"use one of {', '.join(choices)}")
    elif meta.extra:
        kinds = get_args(kind) or (kind,)
        if value is None and type(None) in kinds:
            return
        numbers, named = (int | float, "a number") if float in kinds else (int, "a whole number")
        require(isinstance(value, numbers) and not isinstance(value, bool), f"{name} is {value!r}, needs {named}")
        require(meta.extra["holds"](value), f"{name} is {value!r}, needs {meta.extra['bounds']}")
