"""Create a project to start from: `gearshift.toml`, and the files that it names."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from gearshift.errors import InvalidInput, require
from gearshift.models.config import PROJECT_FILE
from gearshift.profiles.engines.prompts import read_prompts
from gearshift.support.files import PathLike, write_atomically
from gearshift.verbs.common.options import Option
from gearshift.verbs.init import endpoints, language, one_operator, strip_of_digits

MODELS_FILE = "models.py"


def init(
    folder: Path | str = ".",
    *,
    pipeline: Annotated[bool, Option("Write a pipeline: a strip of digits is split, read and joined.")] = False,
    llm: Annotated[bool, Option("Write language models: three tiny ones that read lines about orders.")] = False,
    urls: Annotated[
        Sequence[str] | None,
        Option(
            "With --llm: endpoints of your own, from the smallest model to the largest.",
            "--endpoints",
            metavar="URL,URL",
        ),
    ] = None,
    prompts: Annotated[
        PathLike | None,
        Option("With --llm: the JSONL file of your prompts, a line each: id, messages, reference."),
    ] = None,
    commands: Sequence[str] | None = None,
) -> tuple[Path, ...]:
    """Write the files into `folder`, the project file first; raises `InvalidInput` where one exists already.

    With `pipeline` they are those of a pipeline of two functions and a cascade of four models,
    which need scikit-learn. With `llm` they are three language models with prompts and a judge, for
    llama.cpp's server; or those at `urls`, which are asked for their names, or those that `commands`
    start, from the smallest to the largest; with `prompts`, those in place of examples.
    """
    require(not (pipeline and llm), "pipeline and llm are both given", remedy="give one of them")
    for what, given in (("endpoints", urls), ("commands", commands), ("prompts", prompts)):
        require(llm or not given, f"{what} are given, which only language models have", remedy="give llm, too")
    require(not (urls and commands), "endpoints and commands are both given", remedy="give one of them")
    named = None if prompts is None else _named(Path(prompts), Path(folder))
    if urls:
        content = endpoints.endpoint_files(urls, named)
    elif commands:
        content = endpoints.command_files(commands, named)
    elif llm:
        content = language.project_files() if named is None else language.project_files_around(named)
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


def _named(prompts: Path, folder: Path) -> endpoints.OwnPrompts:
    """The prompts as a project in `folder` names them; raises `InvalidInput` where they cannot be read."""
    referenced = all(one.reference is not None for one in read_prompts(prompts))
    return endpoints.OwnPrompts(os.path.relpath(prompts.resolve(), folder.resolve()), referenced)
