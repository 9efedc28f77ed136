"""A remote endpoint as a model: batches become requests, answers are checked like a model's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import ModelFailed, RowsRefused, require
from gearshift.model import LABEL, Arrays, Predicted
from gearshift.models.classes import class_name, class_names
from gearshift.models.config import PROJECT_FILE, ModelSettings, Project
from gearshift.models.loading import load_certainty
from gearshift.models.remote_settings import RemoteSettings
from gearshift.models.samples import Samples
from gearshift.models.user_model import UserModel
from gearshift.runtime.remote.chat import RemoteChat
from gearshift.runtime.remote.endpoint import PASSING, Asked, Asking, Endpoint
from gearshift.v2.binary import INFERENCE_HEADER, binary_tensor, read_answer

BINARY_EXTENSION = "binary_tensor_data"
REFUSED = frozenset({400, 413, 422})
"""Statuses by which an endpoint refuses a sample, or the batch's size."""
WORTH_SPLITTING = REFUSED | {500}
"""Statuses that one sample of a batch, or the batch's size, may have caused."""


def is_remote_model(project: Project, name: str) -> bool:
    return name in project.models and project.models[name].remote is not None


def open_remote(project: Project, directory: Path, name: str, *, profiling: bool = False) -> UserModel:
    """Model `name` of the project behind its endpoint; `directory` has the `gearshift.toml`.

    While `profiling` there is more time to ask again. Raises `InvalidInput` if key or certificates
    are missing, `ModelFailed` if the endpoint has no such model.
    """
    settings = project.models[name]
    assert settings.remote is not None
    endpoint = Endpoint(settings.remote, directory, f"{PROJECT_FILE}, field models.{name}.remote")
    model: RemoteV2 | RemoteChat
    if settings.remote.protocol == "v2":
        passing = PASSING - WORTH_SPLITTING
        asking = Asking(endpoint, settings.remote, profiling=profiling, passing=passing)
        model = RemoteV2(name, settings.remote, endpoint, asking, profiling=profiling)
        try:
            model.find()
        except ModelFailed:
            endpoint.close()
            raise
    else:
        asking = Asking(endpoint, settings.remote, profiling=profiling)
        model = RemoteChat(name, settings.remote, endpoint, asking, quoting=profiling)
    return UserModel(name, model, load_certainty(project, directory, name), settings.softmax)


def without_answers(n: int, failure: str) -> Predicted:
    """No answers for n samples; unlike `ModelFailed`, this does not split the batch."""
    return Predicted({LABEL: np.full(n, "", dtype=object)}, np.full(n, np.nan), failure)


# Open Inference Protocol V2 ------------------------------------------------------------------------------------------


class _Tensor(msgspec.Struct):
    name: str


class _Model(msgspec.Struct):
    inputs: list[_Tensor] | None = None


class _Server(msgspec.Struct):
    extensions: list[str] | None = None


class RemoteV2:
    """A model of a server that speaks V2 with binary tensors: one request per batch."""

    def __init__(
        self, name: str, settings: RemoteSettings, endpoint: Endpoint, asking: Asking, *, profiling: bool = False
    ) -> None:
        self._name, self._settings, self.endpoint, self._asking = name, settings, endpoint, asking
        self._profiling = profiling
        self._path = f"/v2/models/{quote(settings.model, safe='')}"
        self._inputs: list[str] = []

    @property
    def waited_s(self) -> float:
        return self._asking.waited_s

    def find(self) -> None:
        """Ask for the model's inputs; raises `ModelFailed` without the model or binary tensors."""
        server = self._metadata("/v2", _Server)
        if BINARY_EXTENSION not in (server.extensions or ()):
            url = self._settings.shown_url
            raise ModelFailed(f"model {self._name!r} needs the extension {BINARY_EXTENSION}, which {url} lacks")
        self._inputs = [tensor.name for tensor in self._metadata(self._path, _Model).inputs or ()]

    def decode(self, inputs: Arrays) -> Arrays:
        """The inputs by the endpoint's names; a single input may have another name."""
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
        n = len(next(iter(inputs.values())))
        (reply,) = self._asking.ask([self._request(inputs)])
        if reply.failure or reply.status != 200:
            told = f"model {self._name!r} failed: {self.endpoint.told(reply)}"
            if reply.status in REFUSED:
                raise RowsRefused(told)
            if reply.status in WORTH_SPLITTING and (n > 1 or self._profiling):
                raise ModelFailed(told)
            return without_answers(n, self.endpoint.told(reply))
        try:
            outputs, _ = read_answer(reply.body, reply.headers)
        except ValueError as error:
            return without_answers(
                n, f"{self._settings.shown_url} gave an answer that is none of the V2 protocol ({error})"
            )
        named = self._settings.outputs or {name: name for name in outputs}
        if missing := sorted(set(named) - set(outputs)):
            return without_answers(n, f"{self._settings.shown_url} answered without the output {missing[0]!r}")
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
        (reply,) = self._asking.ask([Asked("GET", path)])
        if reply.failure or reply.status != 200:
            raise ModelFailed(f"model {self._name!r} cannot be found: {self.endpoint.told(reply)}")
        try:
            return msgspec.json.decode(reply.body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            url = self._settings.shown_url
            raise ModelFailed(f"model {self._name!r}: {url} does not speak the V2 protocol ({error})") from None


MOST_NAMED = 5


def require_askable(models: Mapping[str, ModelSettings], samples: Samples) -> None:
    """Raise `InvalidInput` if a remote model lacks its key, or does not fit the samples."""
    for name, model in models.items():
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
