import textwrap
from pathlib import Path
from typing import Any

from gearshift.models.config import ModelSettings, OneOperator, Project


def project(**changes: Any) -> Project:
    models = {"m": ModelSettings(load="models.py:load")}
    return OneOperator(**({"operator": "pets", "samples": "samples.py:load", "models": models} | changes)).as_project()


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return folder
