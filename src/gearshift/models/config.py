"""`gearshift.toml`: which models a user brings, and how to measure them."""

from pathlib import Path

import msgspec

from gearshift.errors import InvalidInput, require
from gearshift.hardware import is_cuda
from gearshift.models.certainty import BUILT_IN
from gearshift.models.remote_settings import RemoteSettings
from gearshift.support.files import read_text

PROJECT_FILE = "gearshift.toml"
ONNX_SUFFIX = ".onnx"


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model: its loader or ONNX file, relative to the project file, or its remote endpoint.

    `load` is `file.py:function` or `file.onnx`, and empty with `remote`; `softmax` turns the
    model's scores into probabilities before certainty is computed; `outputs`, where given, selects
    the model's outputs and gives each its name here: `certainty`, `scores`, `label` or any other;
    `memory_mib` is the memory it needs, if known; `environment` names the variables with secrets
    that it needs, such as `HF_TOKEN`, which workers do not get otherwise.
    """

    load: str = ""
    softmax: bool = False
    outputs: dict[str, str] = {}
    memory_mib: float | None = None
    remote: RemoteSettings | None = None
    environment: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.remote is not None:
            require(not self.load, "load and remote are both given", remedy="give one of them")
            require(not self.outputs, "outputs are given beside remote", remedy="give them within remote")
        elif not self.is_onnx_file:
            _check_reference(self.load, "load", "file.py:function or file.onnx")
        require(len(set(self.outputs.values())) == len(self.outputs), "two outputs have the same name here")
        require(self.memory_mib is None or self.memory_mib > 0, f"memory_mib is {self.memory_mib}, needs more than 0")

    @property
    def is_onnx_file(self) -> bool:
        return self.load.endswith(ONNX_SUFFIX)


class ProfileSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How models are measured."""

    batch_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    repeats: int = 20
    longest_s: float = 10.0
    """Approximate upper bound per model and batch size."""
    device_kind: str = "cpu"
    """`cpu`, `cuda`, or a name beginning with `cpu-` or `cuda-`, to tell devices apart."""
    together: bool = True
    """Time all models in one process, in turn, as in serving; false: one by one (less memory)."""

    def __post_init__(self) -> None:
        require(
            len(self.batch_sizes) >= 1 and min(self.batch_sizes) >= 1 and max(self.batch_sizes) <= 65536,
            f"batch_sizes is {list(self.batch_sizes)}, needs numbers from 1 to 65536",
        )
        require(3 <= self.repeats <= 10_000, f"repeats is {self.repeats}, needs 3 to 10000")
        require(0 < self.longest_s < 1e6, f"longest_s is {self.longest_s}, needs a positive number of seconds")
        require(
            is_cuda(self.device_kind) or self.device_kind == "cpu" or self.device_kind.startswith("cpu-"),
            f"device_kind is {self.device_kind!r}",
            remedy="use cpu or cuda, or a name that begins with cpu- or cuda-",
        )


class Project(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `gearshift.toml`.

    `samples` (`file.py:function`) returns `gearshift.Samples`; `certainty` names a built-in
    function or `file.py:function`; `operator` is the name under which the task is served.
    """

    operator: str
    samples: str
    models: dict[str, ModelSettings]
    certainty: str = "top_two_difference"
    profile: ProfileSettings = ProfileSettings()

    def __post_init__(self) -> None:
        require_operator_name(self.operator)
        _check_reference(self.samples, "samples")
        require(len(self.models) >= 1, "there are no models", remedy="add a [models.NAME] section")
        if ":" in self.certainty:
            _check_reference(self.certainty, "certainty")
        else:
            require(
                self.certainty in BUILT_IN,
                f"certainty is {self.certainty!r}",
                remedy=f"use one of {', '.join(BUILT_IN)}, or file.py:function",
            )


def require_operator_name(name: str) -> None:
    """Raise `InvalidInput` unless `name` can be part of a URL and of a metric."""
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    require(
        plain.isalnum() and name.isascii() and len(name) <= 64,
        f"operator is {name!r}",
        remedy="use up to 64 letters, digits, '-', '_' and '.'",
    )


def project_file(path: Path) -> Path:
    return path / PROJECT_FILE if path.is_dir() else path


def read_project(path: Path) -> Project:
    """Read the project in `path`; raises `InvalidInput` naming file, field and remedy."""
    text = read_text(path, remedy="make one with `gearshift init`")
    try:
        return msgspec.toml.decode(text, type=Project)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidInput(str(error), where=str(path), remedy="mend the file") from error


def _check_reference(reference: str, field: str, form: str = "file.py:function") -> None:
    file, colon, function = reference.partition(":")
    require(
        bool(colon) and file.endswith(".py") and function.isidentifier(),
        f"{field} is {reference!r}",
        remedy=f"write it as {form}",
    )
