"""A project's models and certainty function, loaded from the user's files."""

from pathlib import Path
from typing import Any

from gearshift.errors import ModelFailed, require
from gearshift.models.certainty import CertaintyFunction, built_in
from gearshift.models.config import PROJECT_FILE, ModelSettings, Project
from gearshift.models.function_model import load_function
from gearshift.models.onnx_file import open_onnx_file
from gearshift.models.registries.hugging_face import open_hugging_face
from gearshift.models.registries.mlflow_model import open_mlflow
from gearshift.models.torch_module import is_module, placed
from gearshift.models.user_code import call_in_folder, function_in_folder, said_in_one_line
from gearshift.models.user_model import EarlyExitModel, UserModel


def load_model(
    project: Project, directory: Path, name: str, *, device_kind: str = "cpu", lookups: str | None = None
) -> UserModel:
    """Load and set up model `name` of the project; `directory` is the folder of `gearshift.toml`.

    PyTorch modules and ONNX files go onto a device of `device_kind`. `lookups` overrides how
    learned caches are looked up. Raises `InvalidInput` for an unknown model and a missing file,
    function, library or device, `ModelFailed` where loading raises or its result cannot be run.
    """
    where = f"{PROJECT_FILE}, field models"
    require(
        name in project.models,
        f"there is no model {name!r}",
        where=where,
        remedy=f"use one of {', '.join(project.models)}",
    )
    operator = project.operator_with(name)
    if operator.function:
        return load_function(name, operator.function, directory)
    certainty = load_certainty(project, directory, name)
    settings = operator.models[name]
    if settings.is_onnx_file:
        field = f"{where}.{name}.load"
        model: Any = open_onnx_file(name, directory / settings.load, device_kind=device_kind, where=field)
    elif settings.registry:
        model = _registered(settings, directory, device_kind=device_kind, where=f"{where}.{name}.load")
    else:
        model = call_in_folder(settings.load, directory, field=f"models.{name}.load")
        if is_module(model):
            model = placed(name, model, device_kind)
        else:
            _set_up(name, model, settings.load, lookups)
    leaves_early = all(hasattr(model, attribute) for attribute in ("segments", "exits", "through"))
    kind = EarlyExitModel if leaves_early else UserModel
    return kind(
        name,
        model,
        certainty,
        settings.softmax,
        names=settings.outputs,
        frame=settings.frame,
        categories=settings.categories,
    )


def _registered(settings: ModelSettings, directory: Path, *, device_kind: str, where: str) -> Any:
    _, _, place = settings.load.partition(":")
    if settings.registry == "mlflow":
        return open_mlflow(place, directory, where=where)
    return open_hugging_face(place, directory, device_kind=device_kind, where=where)


def _set_up(name: str, model: Any, reference: str, lookups: str | None) -> None:
    runnable = any(hasattr(model, method) for method in ("predict_proba", "predict")) or callable(model)
    if isinstance(model, type) or not runnable:
        kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        remedy = "answer an object with predict or predict_proba, or a function"
        raise ModelFailed(f"{reference} answered {kind}, which cannot be run; {remedy}")
    if lookups is not None and hasattr(model, "lookups"):
        model.lookups = lookups
    if hasattr(model, "setup"):
        try:
            model.setup()
        except (Exception, SystemExit) as error:
            raise ModelFailed(f"model {name!r} raised {said_in_one_line(error)} in setup") from error


def load_certainty(project: Project, directory: Path, model: str) -> CertaintyFunction:
    certainty = project.operator_with(model).certainty
    if ":" in certainty:
        where = f"{PROJECT_FILE}, field certainty"
        return function_in_folder(certainty, directory, field="certainty", where=where)
    return built_in(certainty)
