"""Create a project to start from: `gearshift.toml`, and a Python file for the user's models."""

from pathlib import Path
from typing import Annotated

from gearshift.errors import InvalidInput
from gearshift.models.config import PROJECT_FILE
from gearshift.support.files import write_atomically
from gearshift.verbs.init import one_operator, strip_of_digits
from gearshift.verbs.options import Option

MODELS_FILE = "models.py"


def init(
    folder: Path | str = ".",
    *,
    pipeline: Annotated[bool, Option("Write a pipeline: a strip of digits is split, read and joined.")] = False,
) -> tuple[Path, Path]:
    """Write both files into `folder`; raises `InvalidInput` where one exists already.

    With `pipeline` they are those of a pipeline of two functions and a cascade of four models,
    which need scikit-learn.
    """
    paths = Path(folder) / PROJECT_FILE, Path(folder) / MODELS_FILE
    for path in paths:
        if path.exists():
            raise InvalidInput("there is such a file already", where=str(path), remedy="choose another folder")
    template = strip_of_digits if pipeline else one_operator
    for path, text in zip(paths, (template.PROJECT, template.MODELS), strict=True):
        write_atomically(path, text.encode())
    return paths
