"""Asking one OpenAI-compatible endpoint, with errors that say what to do about them."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from gearshift.errors import InvalidInput, NoAnswer, require
from gearshift.measuring.engines.heard import Heard
from gearshift.models.language_config import EngineSettings
from gearshift.profiles.engines.prompts import Prompt
from gearshift.runtime.engines.replicas.identity import is_named, lacks
from gearshift.runtime.engines.replicas.own_key import key_of
from gearshift.runtime.engines.upstream.call import Fault, said_in
from gearshift.runtime.engines.upstream.connection import NO_STREAM
from gearshift.runtime.engines.upstream.link import EngineLink
from gearshift.runtime.remote.endpoint import PASSING

TOP_LOGPROBS = 2
MOST_ATTEMPTS = 5
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
LONGEST_WAIT_S = 180.0
"""For an endpoint that limits how many requests come in a minute."""
TOO_MANY = 429
OF_PROMPT = (400, 413, 422)
"""Statuses with which an endpoint refuses a prompt, such as one that is too long."""
LISTED_S = 10.0


class Refused(InvalidInput):
    """The endpoint did not take a request; `again_in_s` is when it says that it might."""

    def __init__(self, status: int, text: str, again_in_s: float | None = None) -> None:
        self.status, self.again_in_s = status, again_in_s
        super().__init__(text)


class BrokenAnswer(InvalidInput):
    """The endpoint ended its stream early, with an error, or with what is no stream."""


class Patience:
    """Pauses between attempts, each twice as long as the last, or as long as the endpoint asks for."""

    def __init__(self) -> None:
        self._pause_s, self._attempts, self._waited_s = FIRST_PAUSE_S, 1, 0.0

    async def pause(self, error: NoAnswer | Refused) -> None:
        """Wait before the next attempt; raises `error` where that would not help, or would take too long."""
        is_limit = isinstance(error, Refused) and error.status == TOO_MANY
        if isinstance(error, Refused) and error.status not in PASSING:
            raise error
        asked_s = (error.again_in_s or 0.0) if isinstance(error, Refused) else 0.0
        pause_s = max(self._pause_s, asked_s)
        is_left = self._waited_s + pause_s <= LONGEST_WAIT_S and (is_limit or self._attempts < MOST_ATTEMPTS)
        if not is_left:
            raise error
        await asyncio.sleep(pause_s)
        self._attempts, self._waited_s = self._attempts + 1, self._waited_s + pause_s
        self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)


class _Waiter:
    """Collects one streamed answer."""

    def __init__(self) -> None:
        self.heard = Heard()
        self.over: asyncio.Future[Fault | None] = asyncio.get_running_loop().create_future()

    def event(self, data: bytes) -> None:
        self.heard.event(data)

    def ended(self) -> None:
        self._end(None)

    def failed(self, fault: Fault) -> None:
        self._end(fault)

    def _end(self, fault: Fault | None) -> None:
        if not self.over.done():  # whoever waited may have left in the same turn of the loop
            self.over.set_result(fault)


class Endpoint:
    """The endpoint of model `name` of a project, at `url`."""

    def __init__(self, name: str, settings: EngineSettings, url: str) -> None:
        self.name, self.settings, self.url = name, settings, url
        self._link = EngineLink(url, key=key_of(settings, f"models.{name}.engine"))
        self.calls = 0
        """Requests sent."""

    def close(self) -> None:
        self._link.close()

    async def ask(
        self, prompt: Prompt, *, most_tokens: int, temperature: float = 0.0, more: Mapping[str, Any] | None = None
    ) -> Heard:
        """One answer with its log-probabilities.

        Raises `Refused` where the endpoint refuses the request, `NoAnswer` where it cannot be
        reached, has no answer in time, or closes the connection, `BrokenAnswer` where the answer has
        no end, and `InvalidInput` where another model answers.
        """
        body = {
            **self.settings.body,
            **prompt.asked,
            **(more or {}),
            "model": self.settings.model,
            "max_tokens": most_tokens,
            "temperature": temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
            "logprobs": True if prompt.messages else TOP_LOGPROBS,
        }
        if prompt.messages:
            body["top_logprobs"] = TOP_LOGPROBS
        path = "/chat/completions" if prompt.messages else "/completions"
        heard = await self._posted(path, msgspec.json.encode(body))
        self._check_model(heard)
        if not heard.finish:
            raise BrokenAnswer(
                f"broke off its answer to prompt {prompt.id!r} after {len(heard.came_ns)} tokens",
                where=self.url,
                remedy="see what the engine's log says",
            )
        if not heard.output_tokens:
            heard.output_tokens = len(heard.came_ns)
        return heard

    async def listed(self) -> bytes:
        """Its list of models; empty where it gives none. Raises `InvalidInput` where that lacks the model."""
        waiter = _Waiter()
        call = self._link.get("/models", waiter)
        try:
            async with asyncio.timeout(LISTED_S):
                fault = await waiter.over
        except TimeoutError:
            return b""
        finally:
            call.cancel()
        body = fault.body if fault is not None and fault.status == 200 else b""
        why = lacks(body, self.settings.model)
        require(not why, why, where=self.url, remedy=f"set model of [models.{self.name}.engine] to one that it lists")
        return body

    async def ask_patiently(self, prompt: Prompt, *, most_tokens: int, temperature: float) -> Heard:
        """As `ask`, again after a pause where the endpoint is busy or the connection broke."""
        patience = Patience()
        while True:
            try:
                return await self.ask(prompt, most_tokens=most_tokens, temperature=temperature)
            except (NoAnswer, Refused) as error:
                await patience.pause(error)

    async def _posted(self, path: str, body: bytes) -> Heard:
        waiter = _Waiter()
        self.calls += 1
        waiter.heard.sent_ns = time.perf_counter_ns()
        call = self._link.post(path, body, waiter)
        try:
            async with asyncio.timeout(self.settings.longest_s):
                fault = await waiter.over
        except TimeoutError:
            raise NoAnswer(
                f"{self.url}: model {self.name!r} gave no whole answer within {self.settings.longest_s:g} s; raise its "
                "longest_s, or lower most_tokens"
            ) from None
        finally:
            if not waiter.over.done() or waiter.over.cancelled():
                call.cancel()
        if fault is not None:
            self._raise(fault)
        if waiter.heard.wrong:
            raise BrokenAnswer(waiter.heard.wrong, where=self.url, remedy="see what the engine's log says")
        return waiter.heard

    def _raise(self, fault: Fault) -> None:
        if fault.unreachable:
            raise NoAnswer(f"{fault.reason}; start the engine of model {self.name!r}, or mend its url", sent=False)
        if fault.status in (401, 403):
            raise Refused(
                fault.status,
                f"{self.url} wants another key for model {self.name!r} (status {fault.status}); name the variable that "
                "holds it by api_key_env",
            )
        if fault.status == 200:
            streams = "; use an endpoint that streams" if NO_STREAM in fault.reason else ""
            raise Refused(200, f"{fault.reason}{streams}")
        if fault.status:
            text = f"{self.url} answered with status {fault.status}: {said_in(fault.body)}"
            raise Refused(fault.status, text, fault.retry_after_s)
        raise NoAnswer(fault.reason)

    def _check_model(self, heard: Heard) -> None:
        asked = self.settings.model
        other = heard.model is not None and not is_named(heard.model, asked)
        require(
            not other,
            f"was asked for model {asked!r}, and {heard.model!r} answered",
            where=self.url,
            remedy=f"set model of [models.{self.name}.engine] to {heard.model!r}, or have the endpoint serve {asked!r}",
        )
