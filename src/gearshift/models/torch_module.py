"""PyTorch modules as models on the worker's device; importing this does not import torch."""

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from gearshift.errors import InvalidInput, ModelFailed, require
from gearshift.hardware import is_cuda
from gearshift.models.loaded_from import note_read
from gearshift.support.extras import load_extra
from gearshift.support.processors import usable_processors

SAFETENSORS_SUFFIX = ".safetensors"


class TorchModule:
    """A module as a model: called with tensors on `device`, one input alone or several by name.

    It returns a tensor, a dict of tensors, or (outputs, certainty). Attributes `classes_`,
    `decode` and `encode` of the module keep their meaning (`gearshift.model.Model`).
    """

    def __init__(self, name: str, module: Any, device: Any) -> None:
        self.name, self.module, self.device = name, module, device
        for attribute in ("classes_", "decode", "encode"):
            if hasattr(module, attribute):
                setattr(self, attribute, getattr(module, attribute))

    def predict(self, batch: Any) -> Any:
        """Answer a batch with arrays, when the stream that it runs in has finished."""
        torch = sys.modules["torch"]
        with torch.inference_mode():
            if isinstance(batch, Mapping):
                answer = self.module(**{name: self._tensor(value) for name, value in batch.items()})
            else:
                answer = self.module(self._tensor(batch))
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        arrays = arrays_of(answer)
        return next(iter(arrays.values())) if isinstance(arrays, dict) and len(arrays) == 1 else arrays

    def _tensor(self, value: Any) -> Any:
        torch = sys.modules["torch"]
        if isinstance(value, torch.Tensor):
            return value.to(self.device)
        array = np.asarray(value)
        if array.dtype.kind in "OSU":
            raise ModelFailed(
                f"model {self.name!r} was given text, which no tensor holds; give the module a method `decode`"
            )
        return torch.from_numpy(array.copy()).to(self.device)  # a copy, since arrays from the socket are read-only


def is_module(model: Any) -> bool:
    torch = sys.modules.get("torch")
    own = any(hasattr(model, method) for method in ("predict_proba", "predict"))
    return torch is not None and isinstance(model, torch.nn.Module) and not own


def placed(name: str, module: Any, device_kind: str) -> TorchModule:
    """Put `module` in evaluation mode on a device, with as many threads as this process has cores.

    Raises `InvalidInput` where PyTorch sees no such device.
    """
    torch = sys.modules["torch"]
    device = torch.device(device_name(device_kind, cuda_is_there=torch.cuda.is_available()))
    torch.set_num_threads(usable_processors())
    return TorchModule(name, module.eval().to(device), device)


def device_name(device_kind: str, *, cuda_is_there: bool) -> str:
    """PyTorch's name for a worker's device; a worker sees only its own CUDA devices."""
    if not is_cuda(device_kind):
        return "cpu"
    require(
        cuda_is_there,
        f"device kind is {device_kind!r}, but PyTorch sees no CUDA device",
        remedy="install a driver and a PyTorch built for CUDA, or measure on device kind cpu",
    )
    return "cuda:0"


def own_stream(device_kind: str) -> AbstractContextManager[Any]:
    """Return a context in which a replica's work runs in a CUDA stream of its own.

    The stream waits for all work begun by now, as weights may still be on their way. The context
    does nothing where `device_kind` is not CUDA, or PyTorch is not loaded or sees no device: a
    session of an ONNX file has a stream of its own anyway.
    """
    torch = sys.modules.get("torch")
    if torch is None or not is_cuda(device_kind) or not torch.cuda.is_available():
        return nullcontext()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    return torch.cuda.stream(stream)  # type: ignore[no-any-return]


def arrays_of(answer: Any) -> Any:
    """Convert tensors to arrays, also in dicts and tuples; bfloat16 becomes float32."""
    torch = sys.modules["torch"]
    if isinstance(answer, torch.Tensor):
        tensor = answer.float() if answer.dtype == torch.bfloat16 else answer
        return tensor.detach().cpu().numpy()
    if isinstance(answer, Mapping):
        return {name: arrays_of(value) for name, value in answer.items()}
    if isinstance(answer, tuple):
        return tuple(arrays_of(value) for value in answer)
    return answer


def cuda_bytes(*, peak: bool = False) -> int:
    """Bytes of tensors on this process's CUDA device; resets the peak, or with `peak` returns it.

    0 where PyTorch is not loaded or has not used CUDA.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    if peak:
        return int(torch.cuda.max_memory_allocated())
    torch.cuda.reset_peak_memory_stats()
    return int(torch.cuda.memory_allocated())


def load_weights(module: Any, path: Path | str) -> Any:
    """Load weights from a safetensors file or a state dictionary into `module`, and return it.

    No code in the file is ever run. Raises `InvalidInput` for a file that is missing, broken,
    holds anything else, or fits another module.
    """
    torch = load_extra("torch", extra="torch", where=str(path))
    require(Path(path).is_file(), "no such file", where=str(path), remedy="check the path")
    note_read(path)
    try:
        if Path(path).suffix == SAFETENSORS_SUFFIX:
            state = load_extra("safetensors.torch", extra="torch", where=str(path)).load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
        module.load_state_dict(state)
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(
            f"holds no weights of {type(module).__name__} ({' '.join(str(error).split())[:300]})",
            where=str(path),
            remedy="save the same module's state_dict(), or make the module as it was when they were saved",
        ) from error
    return module
