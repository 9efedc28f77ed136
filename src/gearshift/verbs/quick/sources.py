"""Where models without a plan are: a file with loaders, a model file, a folder of them, or a project."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gearshift.errors import InvalidInput, require
from gearshift.models.config import ONNX_SUFFIX, PROJECT_FILE, REGISTRIES
from gearshift.models.registries.hugging_face import CONFIG
from gearshift.models.registries.mlflow_model import MLMODEL
from gearshift.plans.plan_folder import PATTERN
from gearshift.support.files import PathLike, read_text

LOADER, SAMPLES = re.compile(r"load(?:_(\w+))?"), "load_samples"
LOADERS = "functions `load` or `load_NAME` without arguments"
LONGEST_NAME = 64
URIS = ("models:/", "runs:/", "mlflow-artifacts:/")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Models by name, each as `load` in gearshift.toml has it, and the function of their samples, if any.

    `project` is the gearshift.toml that already says all this.
    """

    name: str
    models: dict[str, str] = {}
    samples: str = ""
    project: Path | None = None


def models_at(source: PathLike) -> Found | None:
    """The models that `source` names; None where it is a plan, or a folder of plans.

    `source` is `file.py:function`, a Python file with loaders, an ONNX file, a folder of MLflow or of
    Hugging Face, a URI of MLflow, a folder of all these, or a gearshift.toml or its folder. Raises
    `InvalidInput` where there is no model in it.
    """
    text, path = str(source), Path(source)
    if (registered := _of_registry(text)) is not None:
        return registered
    file, colon, function = text.rpartition(":")
    if colon and file.endswith(".py"):
        return _of_one_function(Path(file), function)
    if path.name.endswith(".toml"):
        return Found(name="", project=path)
    if path.suffix == ".py":
        return _of(path.stem, [path], where=text)
    if path.suffix == ONNX_SUFFIX:
        return _of(path.stem, [path], where=text)
    if not path.is_dir() or any(path.glob(PATTERN)):
        return None
    if (path / PROJECT_FILE).is_file():
        return Found(name="", project=path / PROJECT_FILE)
    if kind := _registry_of(path):
        return _of_registry(f"{kind}:{path}")
    files = sorted(each for each in path.iterdir() if _is_model(each))
    require(
        bool(files),
        f"there is no plan ({PATTERN}) in it, and no model",
        where=text,
        remedy="make plans with `gearshift plan --frontier`, or name models",
    )
    return _of(path.resolve().name, files, where=text)


def _of_one_function(file: Path, function: str) -> Found:
    require(file.is_file(), "there is no such file", where=str(file), remedy="write it as file.py:function")
    names = _functions(file)
    others = ", ".join(each for each in names if each != SAMPLES)
    require(
        function in names,
        f"has no function {function!r}" + (f", but {others}" if others else ""),
        where=str(file),
        remedy="write it as file.py:function",
    )
    name = _plain_name(_model_name(file, function))
    samples = f"{file.resolve()}:{SAMPLES}" if SAMPLES in names else ""
    return Found(name=name, models={name: f"{file.resolve()}:{function}"}, samples=samples)


def _of(name: str, files: list[Path], *, where: str) -> Found:
    models, samples = dict[str, str](), ""
    for file in files:
        for model, load in _models_in(file):
            require(
                model not in models,
                f"has two models of the name {model!r}: {models.get(model)} and {load}",
                where=where,
                remedy="rename one of them",
            )
            models[model] = load
        if file.suffix == ".py" and SAMPLES in _functions(file):
            samples = f"{file.resolve()}:{SAMPLES}"
    require(bool(models), f"there is no model in it: no ONNX file, and no Python file with {LOADERS}", where=where)
    return Found(name=next(iter(models)) if len(models) == 1 else _plain_name(name), models=models, samples=samples)


def _registry_of(folder: Path) -> str:
    """Whose folder it is by what is in it; empty for nobody's."""
    if (folder / MLMODEL).is_file():
        return "mlflow"
    return "huggingface" if (folder / CONFIG).is_file() else ""


def _of_registry(text: str) -> Found | None:
    """The model of mlflow:PLACE, huggingface:FOLDER, or a URI such as models:/name/1; None for others."""
    if text.startswith(URIS):
        text = f"mlflow:{text}"
    settings = None if text.endswith(".py") else text.partition(":")
    if settings is None or settings[0] not in REGISTRIES or not settings[2]:
        return None
    place = settings[2]
    is_uri = ":/" in place
    load = text if is_uri else f"{settings[0]}:{Path(place).resolve()}"
    parts = [part for part in place.split("/") if part]
    versioned = is_uri and len(parts) > 1 and (parts[-1].isdigit() or parts[-2] == "models:")
    name = _plain_name(parts[-2] if versioned and parts[-2] != "models:" else parts[-1].partition("@")[0])
    return Found(name=name, models={name: load})


def _is_model(path: Path) -> bool:
    if path.is_dir():
        return bool(_registry_of(path))
    return path.is_file() and path.suffix in (".py", ONNX_SUFFIX)


def _models_in(file: Path) -> Iterator[tuple[str, str]]:
    if file.is_dir():
        yield _plain_name(file.name), f"{_registry_of(file)}:{file.resolve()}"
    elif file.suffix == ".py":
        for function in _functions(file):
            if LOADER.fullmatch(function) and function != SAMPLES:
                yield _plain_name(_model_name(file, function)), f"{file.resolve()}:{function}"
    else:
        yield _plain_name(file.stem), str(file.resolve())


def _functions(file: Path) -> list[str]:
    """Names of the file's functions that can be called without arguments, found without running it."""
    try:
        tree = ast.parse(read_text(file))
    except SyntaxError as error:
        raise InvalidInput(f"is no Python: {error.msg}", where=f"{file}, line {error.lineno}") from None
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and len(node.args.posonlyargs) + len(node.args.args) <= len(node.args.defaults)
        and all(default is not None for default in node.args.kw_defaults)
    ]


def _model_name(file: Path, function: str) -> str:
    match = LOADER.fullmatch(function)
    return function if match is None else match[1] or file.stem


def _plain_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)[:LONGEST_NAME].strip(".-_") or "model"
