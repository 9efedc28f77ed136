"""Finds errors in a remote model's settings before its endpoint is asked, which costs money."""

from gearshift.errors import require
from gearshift.models.classes import class_name, class_names
from gearshift.models.config import PROJECT_FILE, Project, RemoteSettings
from gearshift.models.samples import Samples

MOST_NAMED = 5


def require_askable(project: Project, samples: Samples) -> None:
    """Raise `InvalidInput` if a remote model lacks its key, or does not fit the samples."""
    for name, model in project.models.items():
        if model.remote is not None:
            where = f"{PROJECT_FILE}, field models.{name}.remote"
            model.remote.key(f"{where}.api_key_env")
            if model.remote.protocol == "openai":
                _require_fitting(model.remote, samples, where)


def _require_fitting(remote: RemoteSettings, samples: Samples, where: str) -> None:
    inputs = ", ".join(samples.arrays)
    missing = sorted(remote.inputs - set(samples.arrays))
    require(
        not missing,
        f"the prompt names {{{missing[0]}}}, and the inputs of the samples are {inputs}" if missing else "",
        where=f"{where}.prompt",
        remedy="name an input",
    )
    if samples.labels is None or not remote.classes:
        return
    others = sorted(set(class_names(samples.labels).tolist()) - set(map(class_name, remote.classes)))
    named = ", ".join(f"{one!a}" for one in others[:MOST_NAMED]) + (", ..." if len(others) > MOST_NAMED else "")
    require(
        not others,
        f"the samples are labelled {named}, and the classes are {', '.join(f'{one!a}' for one in remote.classes)}",
        where=f"{where}.classes",
        remedy="write classes as labels are written, and name all of them: an answer that is no class is wrong",
    )
