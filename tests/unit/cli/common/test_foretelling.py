import threading

import numpy as np
import pytest

from gearshift.cli.common import foretelling
from gearshift.cli.common.foretelling import beginning, seconds_for
from gearshift.cli.common.output import SHORT_S, Ticking
from gearshift.workload import Trace

TRACE = Trace(np.arange(1000, dtype=np.int64), 1.0, left_ns=np.arange(1, 1001, dtype=np.int64))


def test_a_run_is_foretold_by_its_first_fiftieth_after_one_that_does_what_is_done_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(foretelling, "LONG", 1000)
    lengths, clock = list[int](), iter((10.0, 10.2))
    assert seconds_for({"a": TRACE}, lambda part: lengths.append(len(part["a"])), lambda: next(clock)) == pytest.approx(
        10.0
    )
    assert lengths == [1, 20]


def test_a_short_trace_is_not_run_twice() -> None:
    assert seconds_for({"a": TRACE}, lambda part: pytest.fail("it was run")) == 0.0


def test_the_beginning_of_a_trace_has_its_deadlines() -> None:
    assert beginning(TRACE, 3).left_ns is not None
    assert list(beginning(TRACE, 3).arrivals_ns) == [0, 1, 2]


def test_what_is_foretold_is_told_at_once_with_the_share_that_is_done() -> None:
    told, heard = list[tuple[str, float]](), threading.Event()

    def tell(what: str, share: float) -> None:
        told.append((what, share))
        heard.set()

    with Ticking(tell, "simulating", SHORT_S):
        assert heard.wait(10)
    assert told[0][0] == "simulating"
    assert 0 <= told[0][1] < 1


def test_nothing_is_told_of_what_ends_soon() -> None:
    with Ticking(lambda what, share: pytest.fail("it was told"), "simulating", 0.0) as ticking:
        pass
    assert not ticking._thread.is_alive()
