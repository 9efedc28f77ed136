import textwrap
from pathlib import Path
from typing import Any

from gearshift.models.config import ModelSettings, Project


def project(**changes: Any) -> Project:
    models = {"m": ModelSettings(load="models.py:load")}
    return Project(**({"operator": "pets", "samples": "samples.py:load", "models": models} | changes))


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return folder
