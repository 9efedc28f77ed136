"""Endpoints and engines as they are reached: started where they have a command, and what each says of itself."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from gearshift.errors import require
from gearshift.hardware import identical_devices, is_cuda, is_remote
from gearshift.measuring.engines.endpoint import Endpoint
from gearshift.measuring.engines.heard import Heard
from gearshift.measuring.engines.timing import require_logprobs
from gearshift.models.language_config import MEMORY_SHARE, EngineSettings
from gearshift.profiles.engines.prompts import Prompt
from gearshift.runtime.backends.local import assign_cores, available_cores
from gearshift.runtime.engines.replicas.engine_process import EngineProcess, engine_environment
from gearshift.runtime.engines.replicas.engine_replica import EngineReplica
from gearshift.runtime.engines.replicas.identity import FINGERPRINT, LISTED, listed_as
from gearshift.runtime.engines.replicas.own_key import key_of

PROBE, PROBE_TOKENS = "Say yes.", 4
Said = dict[str, str]
"""The words of an endpoint about itself, by what they are of (`Identity`)."""


async def said_by(endpoint: Endpoint, heard: Heard) -> Said:
    """From its list of models, and its answer; raises `InvalidInput` where the list lacks its model."""
    listed = listed_as(await endpoint.listed(), endpoint.settings.model)
    return {what: said for what, said in ((LISTED, listed), (FINGERPRINT, heard.fingerprint)) if said}


async def said_by_others(endpoint: Endpoint, *, chat: bool) -> list[Said]:
    """The words of the model's other endpoints, after a short answer of each.

    Raises `InvalidInput` for one that has another model, or gives no log-probabilities, and as
    `Endpoint.ask_patiently`.
    """
    messages = ({"role": "user", "content": PROBE},)
    asked = Prompt(id="made up", messages=messages) if chat else Prompt(id="made up", prompt=PROBE)
    found = []
    for url in endpoint.settings.urls[1:]:
        other = Endpoint(endpoint.name, endpoint.settings, url)
        try:
            heard = await other.ask_patiently(asked, most_tokens=PROBE_TOKENS, temperature=0.0)
            require_logprobs(other, heard)
            found.append(await said_by(other, heard))
        finally:
            other.close()
    return found


def doubts_about_urls(name: str, urls: Sequence[str], said: Sequence[Said]) -> list[str]:
    """Endpoints of one model that tell other things of themselves than the first, which alone is timed."""
    return [
        f"model {name!r}: {what} is {of_url.get(what, '')[:200]!r} at {url}, and {first[:200]!r} at {urls[0]}, which "
        "alone was profiled"
        for url, of_url in zip(urls[1:], said[1:], strict=True)
        for what, first in said[0].items()
        if of_url.get(what, "") != first
    ]


@asynccontextmanager
async def running(
    name: str,
    settings: EngineSettings,
    folder: Path,
    *,
    memory_share: float = MEMORY_SHARE,
    available: Sequence[int] | None = None,
) -> AsyncIterator[str]:
    """The endpoint's URL; an engine with a command is started, and stopped in the end.

    One of kind `cpu` is on some of the processors `available`, by default of those of this process.
    """
    if settings.urls:
        yield settings.urls[0]
        return
    cores = cores_as_served(settings, available_cores() if available is None else available)
    environment = engine_environment(None, len(cores))
    key = key_of(settings, f"models.{name}.engine")

    def make() -> EngineProcess:
        return EngineProcess(
            name,
            lambda port: settings.argv(port=port, memory_share=memory_share, api_key=key or ""),
            folder=folder,
            environment=environment,
            cores=cores,
            key=key,
        )

    replica = EngineReplica(name, settings.model, make=make, key=key, longest_start_s=settings.longest_start_s)
    try:
        await replica.start()
        yield replica.link.url
    finally:
        await replica.stop()


def cores_as_served(settings: EngineSettings, available: Sequence[int]) -> frozenset[int]:
    """The processors that an engine of kind `cpu` has where it is served; none are set for other kinds."""
    if is_cuda(settings.kind) or is_remote(settings.kind):
        return frozenset()
    (degree,) = settings.degrees
    wanted = settings.cores * degree
    require(
        wanted <= len(available),
        f"the engine of model {settings.model!r} has {wanted} cores, and this machine has {len(available)}",
        remedy="lower its cores",
    )
    devices = identical_devices(degree, kind=settings.kind, cores=settings.cores)
    return frozenset().union(*assign_cores(devices, available).values())
