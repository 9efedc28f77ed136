"""Bandwidth over time, and the delay that it adds to each request sent over it."""

import dataclasses
import io
import warnings
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput, require
from gearshift.request import NO_DEADLINE_NS
from gearshift.support.files import PathLike, read_bytes
from gearshift.workload import Workload

MOST_ROWS = 1_000_000
LARGEST_REQUEST_BYTES = 1e12
LONGEST_COMMUNICATION_S = 1e6
_NS_PER_MS = 1_000_000
T = TypeVar("T", bound=np.generic)
_FORM = "give six numbers a line: epoch_ms elapsed_ms latitude longitude bytes interval_ms"


@dataclass(frozen=True, slots=True, eq=False)
class NetworkTrace:
    """A link: `carried_bytes` (n + 1,) since the beginning, at `times_ns` (n + 1,), both from 0.

    Between two times the bandwidth is constant. After the last time the trace starts again.
    """

    times_ns: NDArray[np.int64]
    carried_bytes: NDArray[np.float64]

    @property
    def duration_s(self) -> float:
        return float(self.times_ns[-1]) / NS_PER_S

    def communication_ns(self, sent_ns: NDArray[np.int64], request_bytes: float) -> NDArray[np.int64]:
        """Nanoseconds (n,) that a request of `request_bytes` takes when sent at `sent_ns` (n,).

        The bandwidth is integrated from the instant of sending to that of the last byte. Each
        request has the link to itself: clients, as in Sponge section 2.1, do not share one.
        """
        times, carried = self.times_ns, self.carried_bytes
        turns, within_ns = np.divmod(sent_ns, times[-1])
        more_turns, upto = np.divmod(np.interp(within_ns, times, carried) + request_bytes, carried[-1])
        after = np.maximum(1, np.searchsorted(carried, upto))  # the earliest time with so many bytes is before this
        before = after - 1
        share = (upto - carried[before]) / np.maximum(carried[after] - carried[before], 1e-9)
        last_byte_ns = times[before] + np.rint(share * (times[after] - times[before])).astype(np.int64)
        return np.asarray((turns + more_turns.astype(np.int64)) * times[-1] + last_byte_ns - sent_ns)


@dataclass(frozen=True, slots=True, eq=False)
class OverNetwork:
    """A workload as it arrives over a network; `sent_ns` (n,) is in order of arrival."""

    workload: Workload
    sent_ns: NDArray[np.int64]

    @property
    def communication_s(self) -> NDArray[np.float64]:
        return (self.workload.arrivals_ns - self.sent_ns) / NS_PER_S


@dataclass(frozen=True, slots=True, eq=False)
class Uplink:
    """A network, the size of requests, and their deadline after sending, if any."""

    network: NetworkTrace
    request_bytes: float
    slo_s: float | None = None

    def carry(self, workload: Workload) -> OverNetwork:
        """Delay each arrival of `workload`, taken as a time of sending, by its communication latency.

        With `slo_s`, requests without a deadline get sent + SLO. Raises `InvalidInput` for sizes
        and objectives that are not positive and for a request that travels longer than 11 days.
        """
        self._require_possible()
        sent_ns = workload.arrivals_ns
        arrivals_ns = sent_ns + self.network.communication_ns(sent_ns, self.request_bytes)
        order = np.argsort(arrivals_ns, kind="stable")

        def ordered(values: NDArray[T] | None) -> NDArray[T] | None:
            return None if values is None else np.asarray(values[order])

        arrived = dataclasses.replace(
            workload,
            arrivals_ns=arrivals_ns[order],
            record=workload.record[order],
            duration_s=max(workload.duration_s, float(arrivals_ns.max()) / NS_PER_S),
            deadline_ns=ordered(self._deadline_ns(workload)),
            priority=ordered(workload.priority),
            continues=ordered(workload.continues),
        )
        return OverNetwork(arrived, sent_ns[order])

    def _require_possible(self) -> None:
        require(
            0 < self.request_bytes <= LARGEST_REQUEST_BYTES,
            f"a request of {self.request_bytes:g} bytes",
            remedy=f"give a size above 0 and up to {LARGEST_REQUEST_BYTES:g} bytes",
        )
        slo_s = self.slo_s
        require(slo_s is None or 0 < slo_s < 1e6, f"the SLO is {slo_s} s", remedy="give one above 0 and below 1e6 s")
        slowest_s = (self.request_bytes / float(self.network.carried_bytes[-1]) + 1) * self.network.duration_s
        require(
            slowest_s < LONGEST_COMMUNICATION_S,
            f"a request of {self.request_bytes:g} bytes is under way for up to {slowest_s:g} s",
            remedy="give a smaller size, or a faster network",
        )

    def _deadline_ns(self, workload: Workload) -> NDArray[np.int64] | None:
        own_ns = workload.deadline_ns
        if self.slo_s is None:
            return own_ns
        by_slo_ns = workload.arrivals_ns + round(self.slo_s * NS_PER_S)
        return by_slo_ns if own_ns is None else np.where(own_ns < NO_DEADLINE_NS, own_ns, by_slo_ns)


def read_network(path: PathLike) -> NetworkTrace:
    """Read a bandwidth trace: `epoch_ms elapsed_ms latitude longitude bytes interval_ms`.

    This is the form of 4G logs. `bytes` were carried in the `interval_ms` before `elapsed_ms`; the
    trace begins with its first interval. Raises `InvalidInput`, with the line, for other content,
    for times that do not rise, and where nothing is ever carried.
    """
    rows = _rows(path, read_bytes(path, remedy="check the path of the bandwidth trace"))
    elapsed_ms, carried, interval_ms = rows[:, 1], rows[:, 4], rows[:, 5]

    def check(bad: NDArray[np.bool_], what: str) -> None:
        if bad.any():
            raise InvalidInput(what, where=f"{path}, row {int(np.argmax(bad)) + 1}", remedy=_FORM)

    check(np.any(~(np.abs(rows) <= 1e15), axis=1), "a number is not finite, or enormous")
    check(interval_ms <= 0, "interval_ms is not positive")
    check(carried < 0, "bytes is negative")
    times_ms = np.concatenate([[elapsed_ms[0] - interval_ms[0]], elapsed_ms])
    check(np.diff(times_ms) <= 0, "elapsed_ms does not rise")
    require(bool(carried.sum() > 0), "the network never carries anything", where=str(path), remedy=_FORM)
    times_ns = np.rint((times_ms - times_ms[0]) * _NS_PER_MS).astype(np.int64)
    return NetworkTrace(times_ns, np.concatenate([[0.0], np.cumsum(carried)]))


def _rows(path: PathLike, data: bytes) -> NDArray[np.float64]:
    require(
        data.count(b"\n") <= MOST_ROWS, f"the trace has more than {MOST_ROWS} rows", where=str(path), remedy="cut it"
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            rows = np.loadtxt(io.BytesIO(data), comments=None, ndmin=2, dtype=np.float64)
    except (ValueError, UserWarning) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput(f"not a bandwidth trace ({reason})", where=str(path), remedy=_FORM) from None
    require(rows.shape[1] == 6, f"the lines have {rows.shape[1]} numbers", where=str(path), remedy=_FORM)
    return rows
