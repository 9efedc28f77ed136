"""One request at the door: the id under which it is logged, and what is logged of it."""

import logging
import re
import secrets
import time
from itertools import count

from gearshift.observability.logs import facts
from gearshift.observability.tracing import RequestSpan

REQUEST_ID = "x-request-id"
"""The header, or the metadata, that carries the id in both directions."""
PLAIN = re.compile(r"[\x21-\x7e]{1,128}", re.ASCII)
LONGEST_PATH = 200

log = logging.getLogger(__name__)

_new_ids = count(secrets.randbits(47))
"""Of this process: one after another, from where no other process is likely to be."""


class Exchange:
    """A request and its answer.  `id` is the one `given` in a header, else one that is offered later, else a new one.

    One that is longer than 128 characters, or holds others than printable ASCII, counts as none.  `offered` is what
    the body gave, whatever it was.  `span` is the request's, where it is traced.
    """

    __slots__ = ("_began_s", "_given", "_id", "method", "offered", "path", "span")

    def __init__(self, method: str, path: str = "", given: str = "") -> None:
        self.method, self.path = method, path
        self._id = self._given = given if given and PLAIN.fullmatch(given) else ""
        self.offered = ""
        self._began_s = time.perf_counter()
        self.span: RequestSpan | None = None

    @property
    def id(self) -> str:
        """What the request is called in logs and answers."""
        if not self._id:
            self._id = f"{next(_new_ids):012x}"
        return self._id

    def offer(self, id: str) -> None:
        """Take the id that the request's body gives, unless a header gave one."""
        self.offered = id
        if id and not self._given and PLAIN.fullmatch(id):
            self._given = self._id = id

    def failed(self, reason: str) -> str:
        """What the client is told of a request that failed for `reason`, which is logged under the id."""
        log.error("request failed, id %s: %s", self.id, reason, extra=facts(**self._known()))
        return f"{reason} (id {self.id})"

    def fault(self, error: Exception) -> str:
        """What the client is told of a fault of ours: only the id under which it is logged."""
        log.error("fault, id %s", self.id, exc_info=error, extra=facts(**self._known()))
        return f"an internal error; the server's log explains id {self.id}"

    def end(self, status: int | str | None) -> None:
        """The request was answered with `status`, or the client has gone before (None): a line at level debug."""
        if self.span is not None:
            self.span.end(status, self.id)
        if log.isEnabledFor(logging.DEBUG):
            took_s = time.perf_counter() - self._began_s
            path, told = self.path[:LONGEST_PATH], "no answer, the client is gone" if status is None else status
            known = facts(**self._known(), method=self.method, path=path, status=status, took_s=round(took_s, 6))
            where = f"{self.method} {path!r}" if path else self.method
            log.debug("%s: %s after %.1f ms, id %s", where, told, 1e3 * took_s, self.id, extra=known)

    def _known(self) -> dict[str, str]:
        return {"request_id": self.id} | ({} if self.span is None else {"trace_id": self.span.trace_id})
