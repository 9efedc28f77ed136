"""The watch over a worker, on a loop whose time is moved by hand."""

from collections.abc import Callable

import pytest

from gearshift.runtime.wire.worker_link import Health


class Loop:
    """As much of an event loop as timers need."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, call: Callable[[], None]) -> "Timer":
        self.timers.append((at_s, call))
        return Timer(self)

    def move_to(self, now_s: float, *, in_one_leap: bool = False) -> None:
        """Fire what is due on the way; in one leap as a process does that was held up."""
        while due := [timer for timer in self.timers if timer[0] <= now_s]:
            first = min(due, key=lambda timer: timer[0])
            self.timers.remove(first)
            self.now_s = now_s if in_one_leap else first[0]
            first[1]()
        self.now_s = now_s


class Timer:
    """The loop's one timer."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop

    def cancel(self) -> None:
        self.loop.timers.clear()


class Watched:
    def __init__(self) -> None:
        self.loop = Loop()
        self.asked = 0
        self.stuck: list[str] = []
        self.health = Health(self.loop, probe_s=2, ask=self._ask, stuck=self.stuck.append)
        self.health.start()

    def _ask(self) -> None:
        self.asked += 1


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_an_idle_worker_is_asked_again_and_again(watched):
    for seconds in range(1, 9):
        watched.loop.move_to(seconds)
        watched.health.answered()
    assert (watched.asked, watched.stuck) == (4, [])


def test_one_that_does_not_answer_by_the_next_look_is_stuck_and_looked_at_no_more(watched):
    watched.loop.move_to(3.9)
    assert watched.stuck == []
    watched.loop.move_to(20)
    assert watched.stuck == ["it had not answered for 2 s while it had nothing to do"]


def test_a_busy_worker_is_not_asked(watched):
    watched.health.began(None)
    watched.loop.move_to(100)
    assert (watched.asked, watched.stuck) == (0, [])


def test_a_batch_over_its_time_is_noticed_at_the_next_look(watched):
    watched.health.began(5)
    watched.loop.move_to(5.9)
    assert watched.stuck == []
    watched.loop.move_to(6)
    assert watched.stuck == ["it had held a batch for longer than 5 s"]


def test_a_batch_that_ended_is_forgotten(watched):
    watched.health.began(5)
    watched.health.ended()
    for seconds in range(1, 9):
        watched.loop.move_to(seconds)
        watched.health.answered()
    assert watched.stuck == []


def test_a_look_that_comes_late_gives_the_worker_until_the_next(watched):
    watched.loop.move_to(2)
    watched.loop.move_to(60, in_one_leap=True)
    assert watched.stuck == []
    watched.health.answered()
    watched.loop.move_to(63)
    assert watched.stuck == []


def test_a_worker_that_is_not_looked_at_any_more_is_never_stuck(watched):
    watched.loop.move_to(2)
    watched.health.stop()
    watched.loop.move_to(100)
    assert (watched.asked, watched.stuck) == (1, [])
