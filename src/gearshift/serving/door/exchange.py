"""One request at the server: its id, and its log lines."""

import logging
import re
import secrets
import time
from collections.abc import Callable
from itertools import count

from gearshift.errors import GearshiftError
from gearshift.observability.logs import facts
from gearshift.observability.tracing import RequestSpan

REQUEST_ID = "x-request-id"
"""The header, or gRPC metadata, that carries the id in both directions."""
PLAIN = re.compile(r"[\x21-\x7e]{1,128}", re.ASCII)
LONGEST_PATH = 200

log = logging.getLogger(__name__)

_new_ids = count(secrets.randbits(47))
"""Consecutive ids from a random start, so that processes hardly share any."""


class Exchange:
    """A request and its answer.  `id` is `given` in a header, else offered later, else new.

    An id that is longer than 128 characters or not printable ASCII counts as absent.  `offered` is
    the id in the body, valid or not.  `span` is set if the request is traced; `on_end` is called at
    the end.
    """

    __slots__ = ("_began_s", "_given", "_id", "method", "offered", "on_end", "path", "span")

    def __init__(self, method: str, path: str = "", given: str = "") -> None:
        self.method, self.path = method, path
        self._id = self._given = given if given and PLAIN.fullmatch(given) else ""
        self.offered = ""
        self._began_s = time.perf_counter()
        self.span: RequestSpan | None = None
        self.on_end: Callable[[], object] | None = None

    @property
    def id(self) -> str:
        if not self._id:
            self._id = f"{next(_new_ids):012x}"
        return self._id

    def offer(self, id: str) -> None:
        self.offered = id
        if id and not self._given and PLAIN.fullmatch(id):
            self._given = self._id = id

    def failed(self, reason: str) -> str:
        """Log a failed request under its id; return the text for the client."""
        log.error("request failed, id %s: %s", self.id, reason, extra=facts(**self._known()))
        return f"{reason} (id {self.id})"

    def fault(self, error: Exception) -> str:
        """Log an internal error; return the text for the client, which gives only the id."""
        log.error("fault, id %s", self.id, exc_info=error, extra=facts(**self._known()))
        return f"an internal error; the server's log explains id {self.id}"

    def text_of(self, error: Exception, longest: int) -> str:
        """The text for the client: the error's own, or an id for errors of the server; it may quote long values."""
        return str(error)[:longest] if isinstance(error, GearshiftError) else self.fault(error)

    def end(self, status: int | str | None) -> None:
        """Log the end of the request at level debug; `status` None: the client left before."""
        if self.on_end is not None:
            on_end, self.on_end = self.on_end, None  # it may know this request
            on_end()
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
