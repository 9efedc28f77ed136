import errno
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gearshift.support import processors
from gearshift.support.processors import pin, processors_of, usable_processors


def test_those_are_counted_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7}, raising=False)
    assert usable_processors() == 3


@pytest.mark.parametrize(("there", "counted"), [(8, 8), (None, 1)])
def test_all_are_counted_where_there_is_no_affinity(
    there: int | None, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: there)
    assert usable_processors() == counted


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_a_sandbox_without_pinning_is_told_and_borne(
    number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def forbidden(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "sched_setaffinity", forbidden)
    monkeypatch.setattr(os, "sched_getaffinity", forbidden)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert processors_of() == {0, 1, 2}
    assert not pin({0})
    assert "lets no process be pinned" in caplog.text


def test_a_process_that_is_gone_is_another_error_than_a_sandbox() -> None:
    assert pin(processors_of())
    with pytest.raises(ProcessLookupError):
        pin(processors_of(), 2**22 + 1)


def scheduling() -> tuple[int, int]:
    """Niceness and policy of this thread, and so of what it starts."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id()), os.sched_getscheduler(0)


def after_giving_way() -> tuple[int, int]:
    """In a thread of its own: the priority of one that has given way is its own for good."""

    def give_way() -> tuple[int, int]:
        processors.give_way_to_all()
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
