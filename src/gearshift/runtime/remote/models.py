"""A remote endpoint as a model: batches go out as requests, and what comes back is judged like any model's answer."""

import math
from collections.abc import Sequence
from pathlib import Path
from string import Formatter
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.config import PROJECT_FILE, Project
from gearshift.errors import ModelFailed
from gearshift.loading import RunnableModel, load_certainty
from gearshift.model import LABEL, Arrays, Predicted
from gearshift.remote_settings import RemoteSettings
from gearshift.runtime.remote.endpoint import Asked, Endpoint, Reply
from gearshift.runtime.v2_binary import INFERENCE_HEADER, binary_tensor, read_answer

BINARY_EXTENSION = "binary_tensor_data"
WORTH_SPLITTING = frozenset({400, 413, 422, 500})
"""Statuses that may be the fault of one sample of a batch, or of its size."""


def is_remote_model(project: Project, name: str) -> bool:
    """Whether the project's model `name` is behind an endpoint."""
    return name in project.models and project.models[name].remote is not None


def open_remote(project: Project, directory: Path, name: str) -> RunnableModel:
    """Model `name` of the project, found at its endpoint; `directory` is the folder of `gearshift.toml`.

    Raises `InvalidInput` where key or certificates are missing, `ModelFailed` where the endpoint has no such model.
    """
    settings = project.models[name]
    assert settings.remote is not None
    endpoint = Endpoint(settings.remote, directory, f"{PROJECT_FILE}, field models.{name}.remote")
    model: RemoteV2 | RemoteChat
    if settings.remote.protocol == "v2":
        model = RemoteV2(name, settings.remote, endpoint)
        try:
            model.find()
        except ModelFailed:
            endpoint.close()
            raise
    else:
        model = RemoteChat(name, settings.remote, endpoint)
    return RunnableModel(name, model, load_certainty(project, directory), settings.softmax)


def without_answers(n: int, failure: str) -> Predicted:
    """That none of n samples has an answer, which asking for them one by one would not better."""
    return Predicted({LABEL: np.full(n, "", dtype=object)}, np.full(n, np.nan), failure)


# Open Inference Protocol V2 ------------------------------------------------------------------------------------------


class _Tensor(msgspec.Struct):
    name: str


class _Model(msgspec.Struct):
    inputs: list[_Tensor] = []


class _Server(msgspec.Struct):
    extensions: list[str] = []


class RemoteV2:
    """A model of a server that speaks V2 with binary tensors: one request per batch."""

    def __init__(self, name: str, settings: RemoteSettings, endpoint: Endpoint) -> None:
        self._name, self._settings, self.endpoint = name, settings, endpoint
        self._path = f"/v2/models/{quote(settings.model, safe='')}"
        self._inputs: list[str] = []

    def find(self) -> None:
        """Ask the server for the model's inputs; raises `ModelFailed` where it lacks the model or binary tensors."""
        server = self._metadata("/v2", _Server)
        if BINARY_EXTENSION not in server.extensions:
            url = self._settings.url
            raise ModelFailed(f"model {self._name!r} needs the extension {BINARY_EXTENSION}, which {url} lacks")
        self._inputs = [tensor.name for tensor in self._metadata(self._path, _Model).inputs]

    def decode(self, inputs: Arrays) -> Arrays:
        """The inputs by the names they have there; an only input needs no name in common."""
        if len(inputs) == len(self._inputs) == 1:
            return {self._inputs[0]: next(iter(inputs.values()))}
        missing = [name for name in self._inputs if name not in inputs]
        if missing:
            raise ModelFailed(
                f"model {self._name!r} needs input {missing[0]!r}, but there are {', '.join(inputs)}; "
                "name the samples' inputs as the endpoint does"
            )
        return {name: inputs[name] for name in self._inputs} or inputs

    def predict(self, inputs: Arrays) -> dict[str, NDArray[Any]] | Predicted:
        """Outputs by name, or no answers where the endpoint gave none."""
        n = len(next(iter(inputs.values())))
        (reply,) = self.endpoint.ask([self._request(inputs)])
        if reply.status != 200:
            if reply.status in WORTH_SPLITTING:
                raise ModelFailed(f"model {self._name!r} failed: {self.endpoint.told(reply)}")
            return without_answers(n, self.endpoint.told(reply))
        try:
            outputs, _ = read_answer(reply.body, reply.headers)
        except ValueError as error:
            return without_answers(n, f"{self._settings.url} gave an answer that is none of the V2 protocol ({error})")
        named = self._settings.outputs or {name: name for name in outputs}
        if missing := sorted(set(named) - set(outputs)):
            return without_answers(n, f"{self._settings.url} answered without the output {missing[0]!r}")
        return {here: outputs[there] for there, here in named.items()}

    def _request(self, inputs: Arrays) -> Asked:
        buffers: list[bytes | memoryview] = []
        content: dict[str, Any] = {
            "inputs": [binary_tensor(name, array, buffers) for name, array in inputs.items()],
            "parameters": {"binary_data_output": True},
        }
        if self._settings.outputs:
            content["outputs"] = [
                {"name": name, "parameters": {"binary_data": True}} for name in self._settings.outputs
            ]
        head = msgspec.json.encode(content)
        headers = {"Content-Type": "application/octet-stream", INFERENCE_HEADER: str(len(head))}
        return Asked("POST", f"{self._path}/infer", b"".join([head, *buffers]), headers)

    def _metadata(self, path: str, kind: type[Any]) -> Any:
        (reply,) = self.endpoint.ask([Asked("GET", path)])
        if reply.status != 200:
            raise ModelFailed(f"model {self._name!r} cannot be found: {self.endpoint.told(reply)}")
        try:
            return msgspec.json.decode(reply.body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            url = self._settings.url
            raise ModelFailed(f"model {self._name!r}: {url} does not speak the V2 protocol ({error})") from None


# OpenAI chat completions ---------------------------------------------------------------------------------------------


class _Token(msgspec.Struct):
    logprob: float


class _Logprobs(msgspec.Struct):
    content: list[_Token] | None = None


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    logprobs: _Logprobs | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


class RemoteChat:
    """A model behind OpenAI's chat completions: one request per sample, several at a time.

    The label is the answer's text, the certainty the probability of its first token.
    """

    def __init__(self, name: str, settings: RemoteSettings, endpoint: Endpoint) -> None:
        self._name, self._settings, self.endpoint = name, settings, endpoint
        self._template = [(literal, field) for literal, field, _, _ in Formatter().parse(settings.prompt)]
        self._classes = {one.casefold(): one for one in settings.classes}

    def decode(self, inputs: Arrays) -> Arrays:
        """The inputs by name; raises `ModelFailed` where the prompt names another."""
        for _, field in self._template:
            if field is not None and field not in inputs:
                raise ModelFailed(
                    f"model {self._name!r} has a prompt with {{{field}}}, but the inputs are {', '.join(inputs)}"
                )
        return inputs

    def predict(self, inputs: Arrays) -> Predicted:
        """Labels (n,) and certainties; a sample without a usable answer has no certainty."""
        n = len(next(iter(inputs.values())))
        replies = self.endpoint.ask([self._request(inputs, row) for row in range(n)])
        labels, certainty, failure = np.full(n, "", dtype=object), np.full(n, np.nan), ""
        for row, reply in enumerate(replies):
            try:
                labels[row], certainty[row] = self._judged(reply)
            except ModelFailed as error:
                failure = failure or str(error)
        return Predicted({LABEL: labels}, certainty, failure)

    def _request(self, inputs: Arrays, row: int) -> Asked:
        prompt = "".join(
            literal + ("" if field is None else _as_text(inputs[field][row])) for literal, field in self._template
        )
        content = {
            "model": self._settings.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": self._settings.most_tokens,
            "temperature": 0,
            "logprobs": True,
        }
        return Asked("POST", "/chat/completions", msgspec.json.encode(content))

    def _judged(self, reply: Reply) -> tuple[str, float]:
        """Label and certainty of an answer; raises `ModelFailed` where it has none."""
        url = self._settings.url
        if reply.status != 200:
            raise ModelFailed(self.endpoint.told(reply))
        try:
            choices = msgspec.json.decode(reply.body, type=_Completion).choices
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ModelFailed(f"{url} gave an answer that is no chat completion ({error})") from None
        tokens = choices[0].logprobs.content if choices and choices[0].logprobs else None
        text = choices[0].message.content if choices else None
        if not tokens or text is None:
            raise ModelFailed(f"{url} answered without text or without the log-probabilities of its tokens")
        label = text.strip()
        if self._classes:
            found = self._classes.get(label.rstrip(".!").casefold())
            if found is None:
                raise ModelFailed(f"{url} answered with none of the classes")
            label = found
        return label, math.exp(min(0.0, tokens[0].logprob))


def _as_text(value: Any) -> str:
    """One sample's input as it stands in a prompt: text as it is, several values with commas between."""
    elements: Sequence[Any] = np.asarray(value).ravel().tolist()
    return ", ".join(
        element.decode(errors="replace") if isinstance(element, bytes) else str(element) for element in elements
    )
