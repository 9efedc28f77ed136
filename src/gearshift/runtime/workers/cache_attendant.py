"""The process that audits and adapts the learned caches of one model, at lowest priority.

It is started like a worker and never runs a batch, so serving goes on whatever happens to it. The
model's own loader brings the learned caches; this module knows only the protocols below.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import GearshiftError, InvalidInput
from gearshift.models.config import read_project
from gearshift.models.loading import load_model
from gearshift.models.user_model import UserModel
from gearshift.runtime.wire.messages import Attended, AuditOfLayer, Drawn, Event, InUse, Load, Loaded, LoadFailed, Stop
from gearshift.runtime.wire.transport import BlockingConnection, shortened, unpack_tensors
from gearshift.support.processors import give_way_to_all

TICK_S = 1.0
"""The longest wait for a message."""
MOST_AT_ONCE = 64
"""Samples taken between two slices of work, so that work goes on however many arrive."""
TELL_S = 2.0
"""The interval of reports, and of checks for another version to use."""
IN_LINE = "inline"
"""Look caches up in this process: audits are too few for a second one, which would take a core."""
ANSWERED = "gearshift_scores"
"""The name of the tensor with the answered scores."""


class CacheModel(Protocol):
    version: int
    layers_off: tuple[int, ...]

    def predict(self, batch: Any) -> Mapping[str, NDArray[Any]]:
        """`scores` (n, classes) and `exit_segment` (n,)."""
        ...

    def adapter(self, settings: Mapping[str, Any], **told: Any) -> "CacheAdapter": ...


class CacheAdapter(Protocol):
    """See `gearshift.caches.adapting.adapter.Adapter`."""

    counts: Any

    def learn(self, row: NDArray[Any], exit_segment: int, now_s: float, probabilities: Any = None) -> None: ...

    def audit(self, row: NDArray[Any], exit_segment: int, label: int) -> None: ...

    def step(self, now_s: float) -> bool:
        """Do one slice of work; False if there is none."""
        ...

    def refresh(self) -> None:
        """Use the version that was rolled back to."""
        ...

    def content(self) -> tuple[bytes, bytes]: ...

    def audited(self) -> dict[int, tuple[int, int, float, float]]: ...

    def save(self) -> None:
        """Write the window of samples to disk."""
        ...


def attend(message: Load, connection: BlockingConnection) -> int:
    """Attend to the only replica's model until `Stop`; the exit status is 1 if that fails."""
    (replica,) = message.replicas
    give_way()
    begun = time.perf_counter()
    try:
        path = Path(message.operators[replica.operator].project)
        model = load_model(read_project(path), path.parent, replica.model, lookups=IN_LINE)
        attendant = Attendant(model, dict(message.adaptation or {}), connection)
    except Exception as error:  # noqa: BLE001  user code may raise anything
        reason = str(error) if isinstance(error, GearshiftError) else f"{type(error).__name__}: {error}"
        connection.send(LoadFailed(replica=replica.replica, model=replica.model, reason=shortened(reason)))
        return 1
    connection.send(Loaded(replica=replica.replica, load_s=time.perf_counter() - begun, memory_bytes=0))
    return attendant.main_loop()


def give_way() -> None:
    """Run only when others do not, be killed first if memory runs out, and use no CUDA device."""
    give_way_to_all()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        return  # this system has no such file


class Attendant:
    def __init__(self, model: UserModel, settings: dict[str, Any], connection: BlockingConnection) -> None:
        if not hasattr(model.model, "adapter"):
            raise InvalidInput("it has no learned caches", where=f"model {model.name!r}")
        self._connection, self._decode = connection, getattr(model.model, "decode", None)
        self._caches: CacheModel = model.model
        self._scores_are_ours = not model.softmax
        self._adapter = self._caches.adapter(
            settings, now_s=time.time(), seed=settings.pop("seed", 0), tell=self._tell, changed=self._send_in_use
        )
        self._told_s = 0.0

    def main_loop(self) -> int:
        self._send_in_use()
        busy = True
        while True:
            taken = 0
            while taken < MOST_AT_ONCE and self._connection.waits(0.0 if busy or taken else TICK_S):
                message, body = self._connection.receive()
                match message:
                    case Drawn():
                        self._take(message, body)
                    case Stop():
                        self._adapter.save()
                        return 0
                taken += 1
            busy = self._adapter.step(time.time()) or taken > 0
            self._report(time.time())

    def _take(self, message: Drawn, body: memoryview) -> None:
        arrays = unpack_tensors(message.tensors, body)
        scores = arrays.pop(ANSWERED)[0] if message.scored else None
        rows = self._decode(dict(arrays)) if self._decode is not None else next(iter(arrays.values()))
        row, left = np.asarray(rows)[0], message.exit_segment
        if not message.audited:
            self._adapter.learn(row, left, time.time(), scores if self._scores_are_ours and self._ran(left) else None)
        elif message.version != self._caches.version:
            return  # another version's answer tells nothing about this one
        elif scores is not None:
            self._adapter.audit(row, left, int(scores.argmax()))
        else:  # the answer has no scores: ask this process's copy of the model
            answer = self._caches.predict(row[None])
            self._adapter.audit(row, int(answer["exit_segment"][0]), int(answer["scores"][0].argmax()))

    def _ran(self, exit_segment: int) -> bool:
        """Whether the row ran to the end, so that the base model answered it."""
        return exit_segment == getattr(self._caches, "segments", 0) - 1

    def _report(self, now_s: float) -> None:
        if abs(now_s - self._told_s) < TELL_S:
            return
        self._told_s = now_s
        self._adapter.refresh()
        counts = msgspec.to_builtins(self._adapter.counts)
        outcomes = counts.pop("outcomes")
        layers = tuple(
            AuditOfLayer(segment=segment, audited=audited, disagreed=disagreed, low=low, high=high)
            for segment, (audited, disagreed, low, high) in sorted(self._adapter.audited().items())
        )
        self._connection.send(Attended(counts=counts, outcomes=outcomes, layers=layers))

    def _tell(self, event: str, **facts: object) -> None:
        self._connection.send(Event(event=event, facts=facts))

    def _send_in_use(self) -> None:
        manifest, weights = self._adapter.content()
        in_use = InUse(version=self._caches.version, manifest=manifest, off=self._caches.layers_off)
        self._connection.send(in_use, [weights])
