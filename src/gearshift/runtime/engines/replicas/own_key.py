"""The key of engines that Gearshift starts, so that other users of the machine cannot ask them past the server."""

import secrets
from functools import cache

from gearshift.models.language_config import EngineSettings

OWN_VARIABLE = "GEARSHIFT_ENGINE_KEY"
VARIABLES = OWN_VARIABLE, "VLLM_API_KEY", "LLAMA_API_KEY"
"""From which emulated engines, vLLM and llama.cpp's server take their key; an argument would show in `ps`."""


@cache
def own_key() -> str:
    """The same for all engines of this process, and made anew with each process."""
    return f"gearshift-{secrets.token_hex(24)}"


def key_of(settings: EngineSettings, where: str) -> str | None:
    """The key that an engine is asked with: that of `api_key_env`, or for a started one without it our own.

    Raises `InvalidInput` where the variable is unset or unusable.
    """
    given = settings.key(where)
    return own_key() if given is None and settings.command else given


def with_key(environment: dict[str, str], key: str | None) -> dict[str, str]:
    """The variables of an engine that is started with this key."""
    return environment if key is None else environment | dict.fromkeys(VARIABLES, key)
