import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gearshift.support import priority


def scheduling() -> tuple[int, int]:
    """Niceness and policy of this thread, and so of what it starts."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id()), os.sched_getscheduler(0)


def after_giving_way() -> tuple[int, int]:
    """In a thread of its own: the priority of one that has given way is its own for good."""

    def give_way() -> tuple[int, int]:
        priority.give_way_to_all()
        return scheduling()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(give_way).result()


@pytest.mark.skipif(sys.platform != "linux", reason="SCHED_IDLE is Linux")
def test_it_runs_only_where_nothing_else_wants_to() -> None:
    before = scheduling()
    assert after_giving_way() == (19, os.SCHED_IDLE)
    assert scheduling() == before


@pytest.mark.skipif(sys.platform != "linux", reason="SCHED_IDLE is Linux")
def test_where_the_policy_is_forbidden_niceness_is_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError("not here")

    policy = os.sched_getscheduler(0)
    monkeypatch.setattr(os, "sched_setscheduler", forbidden)
    assert after_giving_way() == (19, policy)
