"""Create a project to start from: `gearshift.toml`, and the files that it names."""

from pathlib import Path
from typing import Annotated

from gearshift.errors import InvalidInput, require
from gearshift.models.config import PROJECT_FILE
from gearshift.support.files import write_atomically
from gearshift.verbs.init import language, one_operator, strip_of_digits
from gearshift.verbs.options import Option

MODELS_FILE = "models.py"


def init(
    folder: Path | str = ".",
    *,
    pipeline: Annotated[bool, Option("Write a pipeline: a strip of digits is split, read and joined.")] = False,
    llm: Annotated[bool, Option("Write language models: two tiny ones that read lines about orders.")] = False,
) -> tuple[Path, ...]:
    """Write the files into `folder`, the project file first; raises `InvalidInput` where one exists already.

    With `pipeline` they are those of a pipeline of two functions and a cascade of four models,
    which need scikit-learn. With `llm` they are two language models with prompts and a judge, for
    llama.cpp's server.
    """
    require(not (pipeline and llm), "pipeline and llm are both given", remedy="give one of them")
    if llm:
        content = language.project_files()
    else:
        template = strip_of_digits if pipeline else one_operator
        content = {PROJECT_FILE: template.PROJECT.encode(), MODELS_FILE: template.MODELS.encode()}
    paths = tuple(Path(folder) / name for name in content)
    for path in paths:
        if path.exists():
            raise InvalidInput("there is such a file already", where=str(path), remedy="choose another folder")
    for path, data in zip(paths, content.values(), strict=True):
        write_atomically(path, data)
    return paths
