"""`gearshift.toml`: operators, their models or functions, and the pipelines made of them."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from gearshift.errors import InvalidInput, require
from gearshift.hardware import is_cuda
from gearshift.model import require_operator_name
from gearshift.models.certainty import BUILT_IN
from gearshift.models.remote_settings import RemoteSettings
from gearshift.pipeline import Edge, Node, require_graph
from gearshift.support.decoding import UNREADABLE, why_unreadable
from gearshift.support.files import read_text
from gearshift.support.frames import FrameKind

PROJECT_FILE = "gearshift.toml"
ONNX_SUFFIX = ".onnx"
REGISTRIES = ("mlflow", "huggingface")


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model: its loader, file or folder, relative to the project file, or its remote endpoint.

    `load` is `file.py:function`, `file.onnx`, `mlflow:FOLDER` (or a URI of MLflow such as
    `mlflow:models:/name/1`) or `huggingface:FOLDER`, and empty with `remote`; `softmax` turns the
    model's scores into probabilities before certainty is computed; `outputs`, where given, selects
    the model's outputs and gives each its name here: `certainty`, `scores`, `label` or any other;
    `frame` gives it all inputs as one data frame, `pandas`, `polars` or `pyarrow`; `categories` are
    the values, by column, of those that it was fitted on as `category` of pandas, in their order there;
    `memory_mib` is the memory it needs, if known; `environment` names the variables with secrets
    that it needs, such as `HF_TOKEN`, which workers do not get otherwise.
    """

    load: str = ""
    softmax: bool = False
    outputs: dict[str, str] = {}
    frame: FrameKind | None = None
    categories: dict[str, tuple[str | int, ...]] = {}
    memory_mib: float | None = None
    remote: RemoteSettings | None = None
    environment: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.remote is not None:
            require(not self.load, "load and remote are both given", remedy="give one of them")
            require(not self.outputs, "outputs are given beside remote", remedy="give them within remote")
            require(self.frame is None, "frame and remote are both given", remedy="leave frame out")
            require(not self.categories, "categories and remote are both given", remedy="leave categories out")
        elif not self.is_onnx_file and not self.registry:
            require_reference(self.load, "load", "file.py:function, file.onnx, mlflow:FOLDER or huggingface:FOLDER")
        require(len(set(self.outputs.values())) == len(self.outputs), "two outputs have the same name here")
        require(
            not self.categories or self.frame in (None, "pandas"),
            f"categories are of pandas, and frame is {self.frame!r}",
            remedy='say frame = "pandas", or leave categories out',
        )
        for column, values in self.categories.items():
            usable = len(values) > 0 and len(set(values)) == len(values) and len({type(value) for value in values}) == 1
            require(usable, f"categories of {column!r} are {list(values)!r:.200}", remedy="give each once, of one type")
        require(self.memory_mib is None or self.memory_mib > 0, f"memory_mib is {self.memory_mib}, needs more than 0")

    @property
    def is_onnx_file(self) -> bool:
        return self.load.endswith(ONNX_SUFFIX) and not self.registry

    @property
    def registry(self) -> str:
        """The one of `REGISTRIES` that keeps the model; empty for none."""
        kind, _, place = self.load.partition(":")
        return kind if kind in REGISTRIES and place else ""


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


class Operator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Models of one task with the same inputs and outputs, or one plain function.

    `function` (`file.py:function`) takes arrays by name, with one element for each item of a
    batch, and returns arrays by name, with one element for each item; these may differ in length.
    `samples` (`file.py:function`) returns `gearshift.Samples`; it is left out where a pipeline with
    samples uses the operator, because the pipeline's requests give its items. `certainty` names a
    built-in function or `file.py:function`.
    """

    samples: str = ""
    models: dict[str, ModelSettings] = {}
    certainty: str = "top_two_difference"
    function: str = ""

    def __post_init__(self) -> None:
        if self.samples:
            require_reference(self.samples, "samples")
        if self.function:
            require_reference(self.function, "function")
            require(not self.models, "function and models are both given", remedy="give one of them")
        else:
            require(
                len(self.models) >= 1, "there are no models", remedy="add a [models.NAME] section, or name a function"
            )
        _check_certainty(self.certainty)


class OneOperator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `gearshift.toml` for one operator.

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
        require_reference(self.samples, "samples")
        require(len(self.models) >= 1, "there are no models", remedy="add a [models.NAME] section")
        _check_certainty(self.certainty)

    def as_project(self) -> "Project":
        operator = Operator(samples=self.samples, models=self.models, certainty=self.certainty)
        return Project(operators={self.operator: operator}, profile=self.profile)


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pipeline: its nodes, the edges between them, and the node whose answer is the request's.

    `samples` (`file.py:function`) returns `gearshift.Samples` of whole requests. Without it each
    operator of the pipeline needs samples of its own, and there are no joint records.
    """

    output: str
    nodes: dict[str, Node]
    edges: tuple[Edge, ...] = ()
    samples: str = ""

    def __post_init__(self) -> None:
        if self.samples:
            require_reference(self.samples, "samples")


class Project(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `gearshift.toml` for several operators and pipelines.

    Each pipeline is served under its name, and so is each operator that no pipeline uses, as a
    pipeline of one node.
    """

    operators: dict[str, Operator]
    pipelines: dict[str, PipelineSettings] = {}
    profile: ProfileSettings = ProfileSettings()

    def __post_init__(self) -> None:
        require(len(self.operators) >= 1, "there are no operators", remedy="add an [operators.NAME] section")
        for name in (*self.operators, *self.pipelines):
            require_operator_name(name)
        for name, pipeline in self.pipelines.items():
            self._check_pipeline(name, pipeline)
        self._check_model_names()
        for name, operator in self.operators.items():
            self._check_samples(name, operator)

    def _check_pipeline(self, name: str, pipeline: PipelineSettings) -> None:
        where = f"pipelines.{name}"
        try:
            require_graph(pipeline.nodes, pipeline.edges, pipeline.output)
        except InvalidInput as error:
            raise InvalidInput(error.what, where=where, remedy=error.remedy) from None
        for node, one in pipeline.nodes.items():
            require(
                one.operator in self.operators,
                f"node {node!r} names operator {one.operator!r}, which is not there",
                where=where,
                remedy=f"use one of {', '.join(self.operators)}, or add [operators.{one.operator}]",
            )
        is_it = [node.operator for node in pipeline.nodes.values()] == [name]
        require(
            name not in self.operators or is_it,
            "the pipeline has the name of an operator that it is not",
            where=where,
            remedy="give one of them another name",
        )

    def _check_model_names(self) -> None:
        owner: dict[str, str] = {}
        for name, operator in self.operators.items():
            for model in models_of(name, operator):
                require(
                    model not in owner,
                    f"operators {owner.get(model)!r} and {name!r} both have a model {model!r}",
                    remedy="give one of them another name: replicas are named by their model",
                )
                owner[model] = name

    def _check_samples(self, name: str, operator: Operator) -> None:
        users = [pipeline for pipeline, one in self.pipelines.items() if name in _operators_of(one)]
        givers = [pipeline for pipeline in users if self.pipelines[pipeline].samples]
        require(
            not (operator.samples and givers),
            f"it has samples, and gets its items from pipeline {givers[0]!r}" if givers else "",
            where=f"operators.{name}",
            remedy="leave its samples out",
        )
        require(
            bool(operator.samples or givers),
            "it has no samples" if not users else f"neither it nor pipeline {users[0]!r} has samples",
            where=f"operators.{name}",
            remedy='add samples = "file.py:function"' + ("" if not users else " to one of them"),
        )

    @property
    def models(self) -> dict[str, ModelSettings]:
        """The models of all operators; a function is the one model of its operator."""
        return {
            model: settings
            for name, operator in self.operators.items()
            for model, settings in models_of(name, operator).items()
        }

    def operator_with(self, model: str) -> Operator:
        """Raises `KeyError` for a model that no operator has."""
        return next(one for name, one in self.operators.items() if model in models_of(name, one))

    @property
    def served(self) -> dict[str, PipelineSettings]:
        """All pipelines, with those of one node that are named like their operator."""
        used = {operator for pipeline in self.pipelines.values() for operator in _operators_of(pipeline)}
        alone = {
            name: PipelineSettings(output=name, nodes={name: Node(operator=name)}, samples=one.samples)
            for name, one in self.operators.items()
            if name not in used
        }
        return self.pipelines | alone


def models_of(name: str, operator: Operator) -> Mapping[str, ModelSettings]:
    return {name: ModelSettings(load=operator.function)} if operator.function else operator.models


def _operators_of(pipeline: PipelineSettings) -> set[str]:
    return {node.operator for node in pipeline.nodes.values()}


def project_file(path: Path) -> Path:
    return path / PROJECT_FILE if path.is_dir() else path


def read_project(path: Path) -> Project:
    """Read the project in `path`; raises `InvalidInput` naming file, field and remedy."""
    text = read_text(path, remedy="make one with `gearshift init`")
    try:
        content = msgspec.toml.decode(text)
        if "operators" in content or "pipelines" in content:
            return msgspec.convert(content, Project)
        return msgspec.convert(content, OneOperator).as_project()
    except UNREADABLE as error:
        raise InvalidInput(why_unreadable(error), where=str(path), remedy="mend the file") from error


def _check_certainty(certainty: str) -> None:
    if ":" in certainty:
        require_reference(certainty, "certainty")
    else:
        require(
            certainty in BUILT_IN,
            f"certainty is {certainty!r}",
            remedy=f"use one of {', '.join(BUILT_IN)}, or file.py:function",
        )


def require_reference(reference: str, field: str, form: str = "file.py:function") -> None:
    file, colon, function = reference.partition(":")
    require(
        bool(colon) and file.endswith(".py") and function.isidentifier(),
        f"{field} is {reference!r}",
        remedy=f"write it as {form}",
    )
