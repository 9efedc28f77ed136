"""Ctrl-C reaches calls in the threads of a database."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any
from weakref import WeakMethod


class AtCtrlC:
    """Calls a method at SIGINT, before what handled the signal so far.

    Python runs signal handlers in the main thread alone, which a database may keep waiting until
    the calls in its other threads are done. Elsewhere than in the main thread nothing is installed.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = WeakMethod(stop)
        self._former: Any = None

    def install(self) -> None:
        former = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(former):
            self._former = former
            signal.signal(signal.SIGINT, self._handle)

    def remove(self) -> None:
        """Put the former handler back, unless there has come another since."""
        ours = self._former is not None and signal.getsignal(signal.SIGINT) == self._handle
        if ours and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._former)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        stop = self._stop()
        if stop is not None:
            stop()
        self._former(number, frame)
