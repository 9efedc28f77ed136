"""Whether every endpoint of a model is the one that the project names, and the words of each about itself."""

from collections.abc import Sequence

from gearshift.measuring.engines.endpoint import Endpoint
from gearshift.measuring.engines.heard import Heard
from gearshift.measuring.engines.timing import require_logprobs
from gearshift.profiles.engines.prompts import Prompt
from gearshift.runtime.engines.replicas.identity import FINGERPRINT, LISTED, listed_as

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
