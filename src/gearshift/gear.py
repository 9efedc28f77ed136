"""Gears, and the gear plan: which cascade and settings serve each load."""

import math
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.cascade import Cascade, ExpectedGain, TimedQuality
from gearshift.display import in_notebook
from gearshift.errors import InvalidInput, require
from gearshift.hardware import Hardware
from gearshift.objective import Asked, Certificate, Objective
from gearshift.pipeline import Edge, Node, require_graph
from gearshift.placement import Placement
from gearshift.request import LEAST_URGENT, MOST_URGENT
from gearshift.result import OtherDevices, ServingResult
from gearshift.workload import PlannedLoad, Reading

SCHEMA_VERSION = 2
MOST_GEARS = 10_000
"""A pipeline has at most this many gears; planners make some tens."""
MOST_BATCH = 1 << 16
"""No profile has run times of larger batches."""
METER_BACKLOG = 0
METER_ALPHA = 1
SHARE_UNIT = 1 << 20
"""Sum of a model's load shares once a plan is resolved to whole numbers."""

Meter = Literal["backlog", "alpha"]
LoadUnit = Literal["requests_per_s", "outstanding_requests", "queued_tokens", "drain_s"]
Order = Literal["arrival", "gain"]
RefineFor = Literal["gain", "rows"]


class LoadRange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """Half-open `[from, to)` in the pipeline's load unit; the last range has no upper end."""

    from_: float
    to: float | None = None

    def __post_init__(self) -> None:
        require(0 <= self.from_ < math.inf, f"load range begins at {self.from_}", remedy="give a finite number from 0")
        if self.to is not None:
            require(
                self.from_ < self.to < math.inf,
                f"load range [{self.from_}, {self.to}) is empty or not finite",
                remedy="give an upper end above the lower one",
            )

    def __str__(self) -> str:
        return f"[{_load(self.from_)}, {'inf' if self.to is None else _load(self.to)})"


def _load(value: float) -> str:
    """Four digits, or all those before the point."""
    return f"{value:.0f}" if value >= 9999.5 else f"{value:.4g}" if value >= 1e-4 else "0"


class ReplicaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one replica in one gear.

    `cores` are in force where the hardware has `pool_cores`; elsewhere those of the placement
    stay. `most_outstanding` bounds the requests that an engine has at a time, which makes its own
    batches; left out, it is twice as many as the engine's profile says that it can run.
    """

    replica: str
    load_share: float
    minimum_queue_length: int = 1
    largest_batch_size: int = 1
    longest_wait_s: float = 0.0
    cores: int = 1
    most_outstanding: int | UnsetType = UNSET

    def __post_init__(self) -> None:
        where = f"settings of replica {self.replica!r}"
        for name, usable, needs in (
            ("load_share", 0 <= self.load_share <= 1, "0 to 1"),
            ("minimum_queue_length", self.minimum_queue_length >= 1, "at least 1"),
            ("largest_batch_size", 1 <= self.largest_batch_size <= MOST_BATCH, f"1 to {MOST_BATCH}"),
            ("longest_wait_s", 0 <= self.longest_wait_s <= 3600, "0 to 3600"),
            ("cores", self.cores >= 1, "at least 1"),
            ("most_outstanding", self.most_outstanding is UNSET or self.most_outstanding >= 1, "at least 1"),
        ):
            require(usable, f"{name} is {getattr(self, name)}, needs {needs}", where=where)


class GearPrediction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Predicted results of a steady load of `load_qps`, by simulation on part A.

    That load is the upper end of the gear's range; for the last gear, which has none, the top of
    the ranges asked for. `latency_p95_s` is at the objective's percentile, whichever that is.
    `replayed_gain` is the accuracy that the replayed trace gained where local search gave the
    range a more expensive cascade than the assignment from steady state; such a gear may cost more
    than that of a lower range.
    """

    load_qps: float
    accuracy: float
    latency_p95_s: float
    share_late: float
    utilisation: float
    replayed_gain: float | None = None


class Gear(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cascades of each node and the replicas' settings for one load range.

    `cascades` are those that each node may use, from cheap to expensive. With several, one is
    chosen for each item by the time that remains: `timed` has a table for each cascade of a node,
    and `margin_s` is taken off that time (`policies/replanning.py`). Items wait in order of
    `arrival`, or of expected `gain` until `answer_by_margin_s` before the objective's latency ends;
    batches that refine then have the size with the most gain, or the most rows, per second
    (`refine_for`).
    """

    load_range: LoadRange
    cascades: dict[str, tuple[Cascade, ...]]
    replicas: tuple[ReplicaSettings, ...]
    predicted: GearPrediction | None = None
    order: Order | UnsetType = UNSET
    answer_by_margin_s: float | UnsetType = UNSET
    refine_for: RefineFor | UnsetType = UNSET
    margin_s: float | UnsetType = UNSET
    timed: dict[str, tuple[TimedQuality, ...]] | UnsetType = UNSET

    def __post_init__(self) -> None:
        where = f"gear for load {self.load_range}"
        for node, cascades in self.cascades.items():
            require(len(cascades) >= 1, f"node {node!r} has no cascade", where=where)
        for name in ("answer_by_margin_s", "margin_s"):
            margin_s = getattr(self, name)
            usable = margin_s is UNSET or 0 <= margin_s < math.inf
            require(usable, f"{name} is {margin_s}, needs a finite number from 0", where=where)
        refines = self.answer_by_margin_s is not UNSET or self.refine_for is not UNSET
        require(
            self.order == "gain" or not refines,
            "answer_by_margin_s or refine_for is set, and the order is not by gain",
            where=where,
            remedy="set order to gain",
        )
        if self.timed is not UNSET:
            tables = {node: len(each) for node, each in self.timed.items()}
            needed = {node: len(each) for node, each in self.cascades.items()}
            require(tables == needed, f"timed has {tables} tables, needs {needed}, one for each cascade", where=where)

    @property
    def cascade(self) -> Cascade:
        """The only cascade of the only node; raises `InvalidInput` where there are several."""
        found = [cascade for cascades in self.cascades.values() for cascade in cascades]
        require(
            len(found) == 1,
            f"the gear for load {self.load_range} has {len(found)} cascades, and one is needed here",
            remedy="give a plan of one node",
        )
        return found[0]


def alone(node: str, cascade: Cascade) -> dict[str, tuple[Cascade, ...]]:
    """The cascades of a gear whose only node has only this one."""
    return {node: (cascade,)}


class PipelinePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The nodes and gears of one pipeline, and how its load is metered.

    A request enters at the nodes that no edge leads to, and is answered by node `output`.
    `objective` is what the plan keeps, `asked` what its planner was asked for; None where it was
    not recorded. `upshift_margin` is the share by which load must fall below a gear's range for an
    immediate upshift; a smaller fall waits for a second. 0, the default, never waits.
    `planned_load` is the distribution of load that the gears were chosen for; None where it was
    not recorded. `gains` are read by gears that order by gain; where several pipelines refine on the
    same devices, these are compared times the `worth` of each pipeline, 1 where it is left out.
    `certificate` is of the answers.
    """

    nodes: dict[str, Node]
    edges: tuple[Edge, ...] = ()
    output: str
    objective: Objective
    asked: Asked | None = None
    gears: tuple[Gear, ...]
    load_unit: LoadUnit = "requests_per_s"
    meter: Meter = "backlog"
    alpha: float = 8.0
    upshift_margin: float = 0.0
    starvation_s: float | None = None
    default_priority: int = LEAST_URGENT
    planned_load: PlannedLoad | None = None
    gains: tuple[ExpectedGain, ...] | UnsetType = UNSET
    worth: float | UnsetType = UNSET
    certificate: Certificate | UnsetType = UNSET

    def __post_init__(self) -> None:
        require_graph(self.nodes, self.edges, self.output)
        count = len(self.gears)
        require(count >= 1, "a pipeline has no gears, needs at least one")
        require(count <= MOST_GEARS, f"a pipeline has {count} gears, at most {MOST_GEARS} are taken")
        for gear in self.gears:
            require(
                gear.cascades.keys() == self.nodes.keys(),
                f"the gear for load {gear.load_range} has cascades for {sorted(gear.cascades)}, "
                f"needs them for the nodes {sorted(self.nodes)}",
            )
        patient = self.starvation_s is None or 0 < self.starvation_s < 1e6
        ranked = MOST_URGENT <= self.default_priority <= LEAST_URGENT
        worthy = self.worth is UNSET or 0 < self.worth < math.inf
        for name, usable, needs in (
            ("alpha", 0 <= self.alpha < math.inf, "a finite number from 0"),
            ("upshift_margin", 0 <= self.upshift_margin <= 1, "0 to 1"),
            ("starvation_s", patient, "a positive number of seconds"),
            ("default_priority", ranked, f"{MOST_URGENT} to {LEAST_URGENT}"),
            ("worth", worthy, "a positive number"),
        ):
            require(usable, f"{name} is {getattr(self, name)}, needs {needs}")
        require(
            self.worth is UNSET or self.refines,
            "worth is set, and no gear orders by gain",
            remedy="leave worth out, or set order to gain",
        )
        require(
            self.planned_load is None or len(self.planned_load.shares) == len(self.gears),
            f"planned_load has other than {len(self.gears)} shares, needs one per gear",
            remedy="set planned_load to null where gears were changed by hand",
        )
        require(self.gears[0].load_range.from_ == 0, "the first gear's load range must begin at 0")
        for lower, upper in zip(self.gears, self.gears[1:], strict=False):
            require(
                lower.load_range.to == upper.load_range.from_,
                f"load ranges {lower.load_range} and {upper.load_range} do not meet",
            )
        require(
            self.gears[-1].load_range.to is None,
            "the last gear's load range must have no upper end",
            remedy="set to null",
        )

    @property
    def is_graph(self) -> bool:
        """Whether the pipeline has more than one node."""
        return len(self.nodes) > 1

    @property
    def refines(self) -> bool:
        """Whether rows wait in the order of expected gain, while there is time."""
        return any(gear.order == "gain" for gear in self.gears)

    @property
    def scales_load(self) -> bool:
        """Whether measured load may be scaled to the planned one: for an accuracy objective."""
        asked = self.objective if self.asked is None else self.asked.objective
        return self.planned_load is not None and asked.accuracy is not None and asked.latency_s is None


class SourceFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file or folder that a plan was made from.

    `path` is relative to the plan file; `sha256` is the SHA-256 of the content, and for a trace
    also of how the file was read, which is its `reading`.
    """

    path: str
    sha256: str
    reading: Reading | None = None


class GearPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A placement of replicas on hardware, and for each pipeline one gear per load range.

    `profiles` are those of the operators, `traces` those of the pipelines. `predictions` maps each
    pipeline to the results of simulation; `planner` names the planner; `unfinished` marks a plan
    whose search was interrupted; `what_if` are predictions for other numbers of devices. Of the
    fields that are left out by default, `most_outstanding`, `decide_at_tokens`, `kv_tokens`,
    `metric` and `tokens` are for language models, whose plans have another load unit; the others
    are for choices by time and for refinement.
    """

    schema_version: int = SCHEMA_VERSION
    planner: str
    seed: int = 0
    hardware: Hardware
    placement: Placement
    pipelines: dict[str, PipelinePlan]
    profiles: dict[str, SourceFile]
    traces: dict[str, SourceFile]
    predictions: dict[str, ServingResult] = {}
    unfinished: bool = False
    what_if: tuple[OtherDevices, ...] | UnsetType = UNSET

    def __post_init__(self) -> None:
        require(
            self.schema_version == SCHEMA_VERSION,
            f"schema_version is {self.schema_version}, a GearPlan has {SCHEMA_VERSION}",
            remedy="make the plan anew with `gearshift plan`",
        )
        require(len(self.pipelines) >= 1, "a plan has no pipelines, needs at least one")
        require(
            self.traces.keys() == self.pipelines.keys(),
            f"the plan has traces of {sorted(self.traces)}, needs those of {sorted(self.pipelines)}",
        )
        operators = {node.operator for pipeline in self.pipelines.values() for node in pipeline.nodes.values()}
        require(
            self.profiles.keys() == operators,
            f"the plan has profiles of {sorted(self.profiles)}, needs those of {sorted(operators)}",
        )
        self._check_devices()
        for name, pipeline in self.pipelines.items():
            for gear in pipeline.gears:
                self._check_gear(gear, where=f"pipeline {name!r}, gear for load {gear.load_range}")

    @property
    def profile(self) -> SourceFile:
        """The profile of the only operator; raises `InvalidInput` for a plan of several."""
        require(
            len(self.profiles) == 1,
            f"the plan has operators {sorted(self.profiles)}, and one is needed here",
            remedy="give a plan of one operator",
        )
        return next(iter(self.profiles.values()))

    @property
    def trace(self) -> SourceFile:
        """The trace of the only pipeline; raises `InvalidInput` for a plan of several."""
        self.require_one_pipeline()
        return next(iter(self.traces.values()))

    @property
    def is_plain(self) -> bool:
        """Whether the plan is of one pipeline of one node, which has one cascade in each gear."""
        if len(self.pipelines) > 1 or self.pipeline.is_graph:
            return False
        return all(len(each) == 1 for gear in self.pipeline.gears for each in gear.cascades.values())

    @property
    def name(self) -> str:
        """The name of the only pipeline; raises `InvalidInput` for a plan of several."""
        self.require_one_pipeline()
        return next(iter(self.pipelines))

    @property
    def pipeline(self) -> PipelinePlan:
        """The only pipeline; raises `InvalidInput` for a plan of several."""
        self.require_one_pipeline()
        return next(iter(self.pipelines.values()))

    def require_one_pipeline(self) -> None:
        """Raise `InvalidInput` for a plan of several pipelines, where one is needed."""
        require(
            len(self.pipelines) == 1,
            f"the plan has pipelines {sorted(self.pipelines)}, and one is needed here",
            remedy="give a plan of one pipeline",
        )

    def cores_in(self, gear: Gear) -> str:
        """The cores of a gear's models, in cascade order, and of idle ones: "1 + 3, 1 idle"."""
        model_of = {replica.id: replica.model for replica in self.placement.replicas}
        cores = dict.fromkeys(gear.cascade.models, 0)
        for settings in gear.replicas:
            cores[model_of[settings.replica]] = cores.get(model_of[settings.replica], 0) + settings.cores
        used = [cores.pop(model) for model in gear.cascade.models]
        idle = f", {sum(cores.values())} idle" if cores else ""
        return f"{' + '.join(map(str, used))}{idle}"

    _repr_html_ = in_notebook

    def _check_devices(self) -> None:
        devices = {device.id: device for device in self.hardware.devices}
        for replica in self.placement.replicas:
            for device_id in replica.device_ids:
                require(
                    device_id in devices,
                    f"replica {replica.id!r} is on device {device_id!r}, which the hardware does not have",
                )
            nodes = {devices[device_id].node for device_id in replica.device_ids}
            require(len(nodes) == 1, f"replica {replica.id!r} spans nodes {sorted(nodes)}, needs devices of one node")

    def _check_gear(self, gear: Gear, *, where: str) -> None:
        model_of = {replica.id: replica.model for replica in self.placement.replicas}
        named = [settings.replica for settings in gear.replicas]
        require(sorted(named) == sorted(model_of), "settings must name each replica of the placement once", where=where)
        pool, cores = self.hardware.pool_cores, sum(settings.cores for settings in gear.replicas)
        require(pool is None or cores <= pool, f"replicas have {cores} cores, and share {pool}", where=where)
        used = {m: None for cascades in gear.cascades.values() for cascade in cascades for m in cascade.models}
        total = dict.fromkeys(used, 0.0)
        for settings in gear.replicas:
            model = model_of[settings.replica]
            if model in total:
                total[model] += settings.load_share
            elif settings.load_share > 0:
                raise InvalidInput(
                    f"replica {settings.replica!r} has a load share, but its model {model!r} is not in the cascade",
                    where=where,
                )
        for model, share in total.items():
            require(
                abs(share - 1) < 1e-9, f"load shares of model {model!r} add up to {share:.12g}, need 1", where=where
            )
