"""Environment variables of workers: the server's, without secrets that no model asks for."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from gearshift.errors import InvalidInput
from gearshift.models.config import Project, read_project

_SECRET = re.compile(
    r"(KEYS?|KEY_ID|TOKENS?|SECRETS?|PASS|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|HEADERS|COOKIES?|DSN)(_|\d*$)",
    re.IGNORECASE,
)
_OF_THE_SERVER = ("GEARSHIFT_", "OTEL_", "CREDENTIALS_DIRECTORY")


def worker_variables(environment: Mapping[str, str], project: Path, models: Collection[str]) -> dict[str, str]:
    """The variables for a worker that loads these models of the `gearshift.toml` at `project`.

    Options of the server, names that look like secrets, and keys of remote models are left out,
    except those that a model of the worker names in `environment` or `api_key_env`.
    """
    try:
        declared = read_project(project)
    except InvalidInput:  # the worker reports it when it loads
        declared = None
    needed, keys = _needed(declared, models), _keys(declared)
    return {
        name: value
        for name, value in environment.items()
        if name in needed or not (name in keys or name.startswith(_OF_THE_SERVER) or _SECRET.search(name))
    }


def _needed(project: Project | None, models: Collection[str]) -> set[str]:
    chosen = [] if project is None else [model for name, model in project.models.items() if name in models]
    remote = {one.remote.api_key_env for one in chosen if one.remote is not None and one.remote.api_key_env}
    return remote.union(*(one.environment for one in chosen))


def _keys(project: Project | None) -> set[str]:
    models = () if project is None else project.models.values()
    return {one.remote.api_key_env for one in models if one.remote is not None and one.remote.api_key_env}
