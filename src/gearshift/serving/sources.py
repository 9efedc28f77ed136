"""Where replayed requests come from: recorded samples as V2 bodies, and how good the answers to them are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.model import datatype_of
from gearshift.profiles.profile import PredictionRecords


class SampleSource(Protocol):
    """The recorded samples of one operator."""

    @property
    def operator(self) -> str:
        """The operator that the samples are sent to."""
        ...

    def body(self, record: int) -> bytes:
        """The encoded V2 JSON request for one recorded sample; raises `InvalidInput` where there is none."""
        ...

    def quality(self, record: int, response: bytes) -> float:
        """Quality in [0, 1] of a V2 JSON answer to that sample; raises `InvalidInput` where it cannot be told."""
        ...


@dataclass(frozen=True, slots=True)
class LabelledSamples:
    """Samples of a project, inputs (samples, ...); an answer is good when its `label` equals the recorded one."""

    operator: str
    inputs: Mapping[str, NDArray[Any]]
    labels: NDArray[Any]

    def body(self, record: int) -> bytes:
        """All inputs of one sample, as rows of one, asking for the output `label` alone."""
        _check_record(record, len(self.labels))
        return inputs_body(self.inputs, record)

    def quality(self, record: int, response: bytes) -> float:
        """1 when the answered label equals the recorded one, in value or in text; else 0."""
        answered, label = _output(response, "label"), self.labels[record].item()
        return float(answered == label or str(answered) == str(label))


@dataclass(frozen=True, slots=True)
class RecordedSamples:
    """Samples of an emulated server: their number is the input, and the answer holds its quality."""

    operator: str
    samples: int

    def body(self, record: int) -> bytes:
        """The number of the sample, as input `sample`, asking for the output `quality`."""
        _check_record(record, self.samples)
        sample = {"name": "sample", "shape": [1], "datatype": "INT64", "data": [record]}
        return msgspec.json.encode({"inputs": [sample], "outputs": [{"name": "quality"}]})

    def quality(self, record: int, response: bytes) -> float:
        """The output `quality` itself."""
        value = _output(response, "quality")
        if not isinstance(value, int | float) or not 0 <= value <= 1:
            raise InvalidInput(f"the answer's quality is {value!r}", remedy="an emulated server answers 0 to 1")
        return float(value)


def source_from_samples(inputs: Mapping[str, NDArray[Any]], labels: NDArray[Any], operator: str) -> LabelledSamples:
    """Samples of a project: named `inputs` (samples, ...) and `labels` (samples,).

    Raises `InvalidInput` where their lengths differ or there are none.
    """
    require(len(labels) > 0 and len(inputs) > 0, "there are no samples to replay", remedy="give inputs and labels")
    for name, array in inputs.items():
        require(
            len(array) == len(labels),
            f"input {name!r} has {len(array)} rows, but there are {len(labels)} labels",
            remedy="give one label per row",
        )
    return LabelledSamples(operator=operator, inputs=inputs, labels=np.asarray(labels))


def source_from_records(predictions: PredictionRecords, operator: str) -> RecordedSamples:
    """The recorded samples of an emulated server."""
    return RecordedSamples(operator=operator, samples=predictions.quality.shape[1])


def inputs_body(inputs: Mapping[str, NDArray[Any]], row: int) -> bytes:
    """The V2 JSON request for one row of `inputs`, which asks for the output `label` alone."""
    tensors = [json_tensor(name, array[row : row + 1]) for name, array in inputs.items()]
    return msgspec.json.encode({"inputs": tensors, "outputs": [{"name": "label"}]})


class _Output(msgspec.Struct, frozen=True):
    name: str
    data: list[Any]


class _Answer(msgspec.Struct, frozen=True):
    outputs: list[_Output]


_answers = msgspec.json.Decoder(_Answer)


def _output(response: bytes, name: str) -> object:
    """The only value of output `name`."""
    try:
        answer = _answers.decode(response)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the answer is no V2 JSON ({error})", remedy="replay against a V2 server") from None
    for output in answer.outputs:
        if output.name == name and len(output.data) == 1:
            return output.data[0]
    raise InvalidInput(
        f"the answer has no output {name!r} of one value",
        remedy=f"replay against an operator that answers one {name!r} per row",
    )


def json_tensor(name: str, array: NDArray[Any]) -> dict[str, object]:
    """An input of n rows in the words of the protocol, its data flat; raises `InvalidInput` for what JSON lacks."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InvalidInput(f"a value of input {name!r} is not finite", remedy="leave its row out")
    datatype = datatype_of(array)
    values = array.reshape(-1).tolist()
    data = [_text(name, value) for value in values] if datatype == "BYTES" else values
    return {"name": name, "shape": list(array.shape), "datatype": datatype, "data": data}


def _text(name: str, value: object) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError:
        raise InvalidInput(
            f"input {name!r} holds bytes that are no UTF-8 text", remedy="JSON requests carry text and numbers alone"
        ) from None


def _check_record(record: int, samples: int) -> None:
    require(0 <= record < samples, f"the workload asks for sample {record}", remedy=f"there are {samples} samples")
