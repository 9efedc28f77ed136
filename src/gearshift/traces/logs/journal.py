"""The requests that a server's journal has, by second."""

from collections.abc import Iterator, Sequence
from io import BufferedReader
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np

from gearshift.errors import InvalidInput, require
from gearshift.support.decoding import UNREADABLE
from gearshift.support.files import PathLike, open_to_read
from gearshift.traces.generate import MOST_REQUESTS
from gearshift.traces.logs.read_log import LogRead
from gearshift.traces.rows import LONGEST_S

ARRIVALS = b'"event":"arrivals"'
LATEST_S = 1e11
LONGEST_LINE = 1 << 20


class _Arrivals(msgspec.Struct):
    """An event of a journal: requests by whole second, the last of which ended `past_s` before `at`."""

    at: float
    pipeline: str
    requests: list[int]
    past_s: float

    def __post_init__(self) -> None:
        usable = all(count >= 0 for count in self.requests) and 0 <= self.at < LATEST_S and abs(self.past_s) < LATEST_S
        if not usable:
            raise ValueError("an event of arrivals has impossible numbers")


def read_journal(path: PathLike, *, pipeline: str | None = None) -> LogRead:
    """Read the requests to a server, of one `pipeline`, from its journal and the older part `PATH.1`.

    A request of several rows counts as so many. While no server ran there were none. Raises
    `InvalidInput` for a file that is missing, and where there are none, or those of several pipelines.
    """
    name, events = str(path), list[_Arrivals]()
    skipped = 0
    for line in chain(_lines(Path(f"{path}.1"), missing_ok=True), _lines(Path(path))):
        if ARRIVALS not in line:
            continue
        try:
            events.append(msgspec.json.decode(line, type=_Arrivals))
        except UNREADABLE:
            skipped += 1
    require(
        bool(events),
        "there are no arrivals in it",
        where=name,
        remedy="give the file of `gearshift serve --journal`, of a server that had requests",
    )
    known = sorted({event.pipeline for event in events})
    require(
        len(known) == 1 or pipeline is not None,
        f"it has the requests of {', '.join(known)}",
        where=name,
        remedy=f"choose one with --where pipeline={known[0]}",
    )
    chosen = [event for event in events if pipeline in (None, event.pipeline)]
    require(bool(chosen), f"it has no requests of {pipeline!r}", where=name, remedy=f"name one of {', '.join(known)}")
    return LogRead(kind="a journal", arrivals_ns=None, counts=_counts(chosen, name), skipped=skipped, paths={})


def _lines(path: Path, *, missing_ok: bool = False) -> Iterator[bytes]:
    if missing_ok and not path.exists():
        return
    try:
        with BufferedReader(open_to_read(path)) as file:
            while line := file.readline(LONGEST_LINE):
                yield line
    except OSError as error:
        raise InvalidInput(f"cannot be read ({error.strerror})", where=str(path), remedy="check the path") from None


def _counts(events: Sequence[_Arrivals], where: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    begins = [round(event.at - event.past_s - len(event.requests)) for event in events]
    first = min(begins)
    seconds = max(begin + len(event.requests) for begin, event in zip(begins, events, strict=True)) - first
    require(seconds < LONGEST_S, "it is longer than 10 million seconds", where=where, remedy="cut it")
    counts = np.zeros(seconds, dtype=np.int64)
    for begin, event in zip(begins, events, strict=True):
        counts[begin - first : begin - first + len(event.requests)] += np.array(event.requests, dtype=np.int64)
    require(int(counts.sum()) < MOST_REQUESTS, "it has more than 200 million requests", where=where, remedy="cut it")
    asked = np.flatnonzero(counts)
    return counts[asked[0] : asked[-1] + 1]
