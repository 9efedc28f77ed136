"""ONNX files as models: a session on the worker's device, fed by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, ModelFailed, require
from gearshift.hardware import is_cuda
from gearshift.model import DATATYPES, Arrays, TensorSpec, datatype_of, zeros
from gearshift.support.extras import load_extra
from gearshift.support.processors import usable_processors

NAMED_OTHERWISE = {"float32": "float", "float64": "double", "object": "string"}
DATATYPE_OF = {f"tensor({NAMED_OTHERWISE.get(dtype, dtype)})": name for name, dtype in DATATYPES.items()}
ERRORS_ONLY = 3


class OnnxFile:
    """An onnxruntime session as a model (`gearshift.model.Model`).

    A single output is the answer; several are outputs by name. `make_session` makes another
    session with a given number of threads.
    """

    def __init__(self, name: str, session: Any, make_session: Callable[[int], Any]) -> None:
        self.name, self.session, self.make_session = name, session, make_session
        self._inputs = session.get_inputs()
        self._outputs = [output.name for output in session.get_outputs()]

    def decode(self, inputs: Arrays) -> dict[str, NDArray[Any]]:
        """Return the session's inputs by name, or the only one; unknown inputs are left out.

        Raises `ModelFailed` for one that is missing, of another type, or of a shape that does not
        fit.
        """
        if len(inputs) == len(self._inputs) == 1:
            return {self._inputs[0].name: self._fitting(self._inputs[0], next(iter(inputs.values())))}
        missing = [node.name for node in self._inputs if node.name not in inputs]
        if missing:
            raise ModelFailed(
                f"model {self.name!r} needs input {missing[0]!r}, but there are {', '.join(inputs)}; "
                "name the samples' inputs as the ONNX file does"
            )
        return {node.name: self._fitting(node, inputs[node.name]) for node in self._inputs}

    def example(self) -> dict[str, NDArray[Any]]:
        """A row of zeros or texts by input; axes that may vary have one element."""
        specs = {
            node.name: TensorSpec(name=node.name, datatype=DATATYPE_OF[node.type], shape=(-1, *_sizes(node)))
            for node in self._inputs
        }
        return {name: zeros(spec, 1) for name, spec in specs.items()}

    def predict(self, feed: dict[str, NDArray[Any]]) -> Any:
        answers = self.session.run(None, feed)
        return answers[0] if len(answers) == 1 else dict(zip(self._outputs, answers, strict=True))

    def _fitting(self, node: Any, array: NDArray[Any]) -> NDArray[Any]:
        datatype = DATATYPE_OF[node.type]
        fits = len(node.shape) == array.ndim and all(
            not isinstance(want, int) or want == got for want, got in zip(node.shape[1:], array.shape[1:], strict=True)
        )
        if datatype_of(array) != datatype or not fits:
            wanted = [-1, *_sizes(node)]
            raise ModelFailed(
                f"model {self.name!r} needs input {node.name!r} as {datatype} of shape {wanted}, "
                f"but was given {datatype_of(array)} of shape {[-1, *array.shape[1:]]}; give it so in `samples`"
            )
        return array.astype(np.object_) if datatype == "BYTES" else array


def _sizes(node: Any) -> list[int]:
    return [size if isinstance(size, int) else -1 for size in node.shape[1:]]


def open_onnx_file(name: str, path: Path, *, device_kind: str, where: str) -> OnnxFile:
    """Load model `name` from `path` for this process's cores or CUDA device 0.

    `where` is the field that names the file. Raises `InvalidInput` where onnxruntime is not
    installed or lacks CUDA, and for a file that is missing, broken, or whose inputs and outputs
    are not batches of tensors.
    """
    require(path.is_file(), f"there is no file {path}", where=where, remedy="mend the path")
    onnxruntime = load_extra("onnxruntime", extra="onnx", where=f"{where}: {path}")
    provider = "CUDAExecutionProvider" if is_cuda(device_kind) else "CPUExecutionProvider"
    require(
        provider in onnxruntime.get_available_providers(),
        f"device kind {device_kind!r} needs {provider}, which this onnxruntime lacks",
        where=where,
        remedy="install onnxruntime-gpu, or measure on device kind cpu",
    )

    def make_session(threads: int) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = ERRORS_ONLY
        # Threads that spin after a batch would take cores from the next model on this device.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return onnxruntime.InferenceSession(str(path), options, providers=[provider])

    try:
        session = make_session(usable_processors())
    except Exception as error:
        raise InvalidInput(
            f"onnxruntime cannot load the file ({' '.join(str(error).split())})",
            where=str(path),
            remedy="export it again",
        ) from error
    _require_batches_of_tensors(session, path)
    return OnnxFile(name, session, make_session)


def _require_batches_of_tensors(session: Any, path: Path) -> None:
    for kind, nodes in (("input", session.get_inputs()), ("output", session.get_outputs())):
        for node in nodes:
            require(
                node.type in DATATYPE_OF,
                f"{kind} {node.name!r} is a {node.type}",
                where=str(path),
                remedy="export it with tensors of numbers or text alone (from scikit-learn: without ZipMap)",
            )
    for node in session.get_inputs():
        require(
            len(node.shape) >= 1 and not isinstance(node.shape[0], int),
            f"input {node.name!r} has the fixed shape {node.shape}, and batches differ in size",
            where=str(path),
            remedy="export it with a dynamic first axis",
        )
