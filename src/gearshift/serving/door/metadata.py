"""Metadata, configuration, index and statistics of a server's pipelines, for REST and gRPC."""

from collections.abc import Mapping
from typing import Any, Literal, NoReturn

import msgspec

from gearshift import __version__
from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput
from gearshift.model import TensorSpec
from gearshift.observability.metrics import Totals
from gearshift.serving.door.signature import Signature
from gearshift.v2.tensors import MODEL_VERSION, SERVER_NAME, Limits

EXTENSIONS = (
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
)
"""Triton's names; of model_repository only the index is supported."""


class ServerMetadata(msgspec.Struct):
    """The server's name and version, and the protocol extensions it supports."""

    name: str
    version: str
    extensions: list[str]


class ModelMetadata(msgspec.Struct):
    """A pipeline's inputs and outputs; -1 stands for any number from 1."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]


class ConfiguredTensor(msgspec.Struct):
    """A tensor's dimensions without its rows."""

    name: str
    data_type: str
    dims: list[int]


class ModelConfiguration(msgspec.Struct):
    """A pipeline as a model configuration of Triton."""

    name: str
    platform: str
    backend: str
    max_batch_size: int
    input: list[ConfiguredTensor]
    output: list[ConfiguredTensor]


class Took(msgspec.Struct):
    """How often something was done, and the total nanoseconds it took."""

    count: int
    ns: int


class Durations(msgspec.Struct):
    """`success`, `fail` and `queue` count requests, `compute_infer` batches; others are not measured."""

    success: Took
    fail: Took
    queue: Took
    compute_input: Took
    compute_infer: Took
    compute_output: Took
    cache_hit: Took
    cache_miss: Took


class ModelStatistics(msgspec.Struct):
    """Totals since the server started; `last_inference` is in milliseconds of Unix time."""

    name: str
    version: str
    last_inference: int
    inference_count: int
    execution_count: int
    inference_stats: Durations
    batch_stats: list[Any]


class Statistics(msgspec.Struct):
    """Statistics of one pipeline or of all."""

    model_stats: list[ModelStatistics]


class IndexEntry(msgspec.Struct):
    """A pipeline and its state."""

    name: str
    version: str
    state: Literal["READY", "UNAVAILABLE"]
    reason: str


def server_metadata() -> ServerMetadata:
    return ServerMetadata(name=SERVER_NAME, version=__version__, extensions=list(EXTENSIONS))


def model_metadata(served: Signature) -> ModelMetadata:
    return ModelMetadata(
        name=served.name,
        versions=[MODEL_VERSION],
        platform=SERVER_NAME,
        inputs=list(served.inputs),
        outputs=list(served.outputs),
    )


def most_rows(limits: Limits, most_waiting: int) -> int:
    """The most rows that clients are told to send at once: larger requests are taken, and run as bulk work."""
    return min(most_waiting, limits.most_rows or most_waiting)


def model_config(served: Signature, most_rows: int) -> ModelConfiguration:
    """Return Triton's model configuration; dimensions omit rows, which `max_batch_size` bounds."""
    return ModelConfiguration(
        name=served.name,
        platform=SERVER_NAME,
        backend=SERVER_NAME,
        max_batch_size=most_rows,
        input=[_configured(spec) for spec in served.inputs],
        output=[_configured(spec) for spec in served.outputs],
    )


def _configured(spec: TensorSpec) -> ConfiguredTensor:
    datatype = "STRING" if spec.datatype == "BYTES" else spec.datatype
    return ConfiguredTensor(name=spec.name, data_type=f"TYPE_{datatype}", dims=list(spec.shape[1:]))


def repository_index(ready: Mapping[str, bool], *, ready_only: bool = False) -> list[IndexEntry]:
    """An entry for each pipeline, by whether it is ready; with `ready_only`, for those that are."""
    return [_entry(name, is_ready) for name, is_ready in ready.items() if is_ready or not ready_only]


def _entry(name: str, ready: bool) -> IndexEntry:
    reason = "" if ready else "a model with which requests begin has no worker, or the server is ending"
    return IndexEntry(name=name, version=MODEL_VERSION, state="READY" if ready else "UNAVAILABLE", reason=reason)


def refuse_loading(verb: str) -> NoReturn:
    raise InvalidInput(
        f"a model cannot be {verb}ed on its own, a plan needs all of its models", remedy="serve another plan"
    )


def statistics(totals: Mapping[str, Totals]) -> Statistics:
    """Return the pipelines' totals in Triton's form; times are of whole batches."""
    return Statistics(model_stats=[_statistics(name, of_pipeline) for name, of_pipeline in totals.items()])


def _statistics(name: str, totals: Totals) -> ModelStatistics:
    none = _took(0, 0.0)
    return ModelStatistics(
        name=name,
        version=MODEL_VERSION,
        last_inference=round(totals.last_answer_s * 1000),
        inference_count=totals.rows,
        execution_count=totals.batches,
        inference_stats=Durations(
            success=_took(totals.succeeded, totals.succeeded_s),
            fail=_took(totals.failed, totals.failed_s),
            queue=_took(totals.queued, totals.queued_s),
            compute_input=none,
            compute_infer=_took(totals.batches, totals.run_s),
            compute_output=none,
            cache_hit=none,
            cache_miss=none,
        ),
        batch_stats=[],
    )


def _took(count: int, seconds: float) -> Took:
    return Took(count=count, ns=round(seconds * NS_PER_S))
