"""Whole relations through a pipeline that a server serves: requests of 100 rows on 32 connections."""

import asyncio
import math
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np

from gearshift.bulk.answers import ANSWERED, DEGRADED, FAILED, REFUSED, Answers
from gearshift.bulk.background import together
from gearshift.bulk.window import Window
from gearshift.client.client import AsyncClient
from gearshift.client.http_client import HttpClient
from gearshift.client.v2_client import ClientAnswer, ClientProtocol, error_in
from gearshift.errors import (
    DeadlinePassed,
    Forbidden,
    InvalidInput,
    NoAccess,
    NoAnswer,
    NotReady,
    QueueFull,
    RequestFailed,
    UnknownModel,
    require,
)
from gearshift.model import Arrays, TensorSpec
from gearshift.request import BulkWork, MissingNode

REQUEST_ROWS = 100
CONNECTIONS = 32
LONGEST_CALL_S = 120.0
"""After so long without an answer a request is withdrawn and sent again, if the server still says that it lives."""
LONGEST_RUN_S = 86_400.0
LONGEST_AWAY_S = 10.0
"""How long a server may be away, as while it is started again, until the run fails."""
PAUSE_S = 0.05
REACH_WITHIN_S = 10.0
CERTAINTY = "gearshift_certainty"
ANY_WORK = BulkWork()
"""Keeps the cascades that the plan's objective asks for."""


class _Tensor(msgspec.Struct):
    name: str
    datatype: str
    shape: tuple[int, ...]
    missing: bool = False


class _Model(msgspec.Struct):
    inputs: tuple[_Tensor, ...]
    outputs: tuple[_Tensor, ...]


class _Config(msgspec.Struct):
    max_batch_size: int


class _Listed(msgspec.Struct):
    name: str


class ServedOperator:
    """One pipeline of a server, where rows are bulk work: they keep the cascades that `work` asks for."""

    def __init__(
        self, url: str, work: BulkWork = ANY_WORK, *, api_key: str | None = None, ca_file: Path | str | None = None
    ) -> None:
        self._url, self._work, self._api_key, self._ca_file = url, work, api_key, ca_file
        self._protocol = ClientProtocol(url, "", api_key, ca_file, REACH_WITHIN_S, 1)
        self._http = HttpClient(url, tls=self._protocol.tls)
        self._client: AsyncClient | None = None
        self._rows = REQUEST_ROWS
        self._window = Window(CONNECTIONS)
        self.waits = False
        """Whether the server had no room for the last request."""
        self.pipeline = ""
        self.inputs: tuple[TensorSpec, ...] = ()
        self.outputs: tuple[TensorSpec, ...] = ()

    async def start(self, pipeline: str | None) -> None:
        """Ask for the tensors; raises `InvalidInput` where the server has no such pipeline, or several."""
        self.pipeline = pipeline or await self._only_pipeline()
        path = f"/v2/models/{quote(self.pipeline, safe='')}"
        read = msgspec.json.decode(await self._get("GET", path), type=_Model)
        config = msgspec.json.decode(await self._get("GET", f"{path}/config"), type=_Config)
        self._rows = max(1, min(REQUEST_ROWS, config.max_batch_size))
        self.inputs, self.outputs = (
            tuple(
                TensorSpec(name=one.name, datatype=one.datatype, shape=one.shape, missing=one.missing)
                for one in tensors
            )
            for tensors in (read.inputs, read.outputs)
        )
        self._client = AsyncClient(
            self._url,
            self.pipeline,
            api_key=self._api_key,
            ca_file=self._ca_file,
            longest_s=LONGEST_RUN_S,
            most_attempts=1,
            connections=CONNECTIONS,
        )

    async def stop(self) -> None:
        self._http.close()
        if self._client is not None:
            await self._client.close()

    async def answer(self, inputs: Arrays, rows: int, label: str, end_s: float | None) -> Answers:
        answers = Answers.none_yet(rows)
        pieces = [np.arange(start, min(rows, start + self._rows)) for start in range(0, rows, self._rows)]
        await together([self._ask(inputs, piece, label, end_s, answers) for piece in pieces])
        return answers

    async def _ask(
        self,
        inputs: Arrays,
        rows: "np.ndarray[Any, np.dtype[np.int64]]",
        label: str,
        end_s: float | None,
        into: Answers,
    ) -> None:
        """Ask for consecutive `rows`; where the request fails, in halves, until the bad row is alone."""
        first, last = int(rows[0]), int(rows[-1]) + 1
        try:
            part = {name: array[first:last] for name, array in inputs.items()}
            answer = await self._infer(part, label, end_s)
        except DeadlinePassed:
            into.end(rows, REFUSED)
        except (NoAccess, Forbidden, UnknownModel):
            raise
        except (RequestFailed, InvalidInput):
            if len(rows) == 1:
                into.end(rows, FAILED)
                return
            middle = len(rows) // 2
            for half in (rows[:middle], rows[middle:]):
                await self._ask(inputs, half, label, end_s, into)
        else:
            _keep(answer, rows, label, into)

    async def _infer(self, inputs: Arrays, label: str, end_s: float | None) -> ClientAnswer:
        """Ask until there is an answer, or an error that would come again; `DeadlinePassed` after `end_s`."""
        assert self._client is not None
        away_s = math.inf
        while True:
            await self._window.enter()
            fits = False
            try:
                left_s = None if end_s is None else end_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    raise DeadlinePassed("it could not begin in time")
                async with asyncio.timeout(LONGEST_CALL_S):
                    answer = await self._client.infer(
                        inputs, deadline_s=left_s, bulk=self._work, outputs=(label, CERTAINTY)
                    )
                fits, self.waits = True, False
                return answer
            except QueueFull:  # bulk work waits for as long as the server lives
                self.waits, away_s = True, math.inf
            except TimeoutError:
                self.waits, away_s = True, math.inf
                await self._get("GET", "/v2/health/live")
                if len(next(iter(inputs.values()))) > 1:  # fewer rows may be answered in time
                    raise RequestFailed(f"the server gave no answer within {LONGEST_CALL_S:g} s") from None
            except (NotReady, NoAnswer) as error:
                away_s = min(away_s, time.monotonic())
                again = isinstance(error, NotReady) or not error.sent
                if not again or time.monotonic() > away_s + LONGEST_AWAY_S:
                    raise
            finally:
                self._window.leave(fits)
            await asyncio.sleep(PAUSE_S)

    async def pipelines(self) -> list[str]:
        listed = msgspec.json.decode(await self._get("POST", "/v2/repository/index"), type=list[_Listed])
        return [one.name for one in listed]

    async def _only_pipeline(self) -> str:
        names = await self.pipelines()
        require(
            len(names) == 1,
            f"the server has the pipelines {', '.join(sorted(names))}",
            where=self._url,
            remedy="name one of them",
        )
        return names[0]

    async def _get(self, method: str, path: str) -> bytes:
        headers = self._protocol.get(path).headers
        sent = self._http.request_bytes(method, path, b"{}" if method == "POST" else b"", headers)
        response = await self._http.response_to(sent, within_s=REACH_WITHIN_S)
        if response.status != 200:
            raise error_in(response)
        return response.body


def _keep(answer: ClientAnswer, rows: "np.ndarray[Any, np.dtype[np.int64]]", label: str, into: Answers) -> None:
    """Keep the answers of `rows`; those without one of a graph's output node have none."""
    degraded = answer.parameters.get("outcome") == "degraded"
    has_label = np.full(len(rows), label in answer.outputs)
    told = answer.parameters.get("gearshift_missing")
    for one in msgspec.json.decode(told, type=list[MissingNode]) if told else ():
        if one.is_output:
            has_label[one.row] = False
    if has_label.any():
        into.keep(rows[has_label], answer.outputs[label][has_label], answer.outputs[CERTAINTY][has_label])
    into.outcome[rows] = DEGRADED if degraded else ANSWERED
