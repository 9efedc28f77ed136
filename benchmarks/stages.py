"""Stages of a benchmark that must end in time: each is bounded, none takes the others' results with it."""

import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import msgspec

from gearshift.support.files import write_atomically

Facts = dict[str, object]
DONE = "done"


class TimeUp(BaseException):
    """A stage has had its time; no `except Exception` on the way keeps it."""


class Stages:
    """Runs stages within `budget_s` together; after each, all that is known is in the JSON file `out`."""

    def __init__(self, out: Path, budget_s: float, about: Mapping[str, object]) -> None:
        self.out, self._ends_s = out, time.monotonic() + budget_s
        self.facts: dict[str, Facts] = {}
        self._about = {**about, "budget_s": budget_s}
        self._write()

    @property
    def left_s(self) -> float:
        """Seconds that are left of the budget."""
        return self._ends_s - time.monotonic()

    def run(
        self, name: str, work: Callable[[float], Facts], *, least_s: float, most_s: float, needs: Sequence[str] = ()
    ) -> None:
        """Run `work` with the seconds that it may take, `most_s` at most; its facts, or why there are none, are kept.

        It is skipped where fewer than `least_s` are left, or a stage that it `needs` was not done.
        """
        missing = [need for need in needs if self.facts.get(need, {}).get("status") != DONE]
        if missing:
            self._keep(name, {"status": "skipped", "why": f"it needs {', '.join(missing)}, which was not done"})
            return
        if self.left_s < least_s:
            self._keep(name, {"status": "skipped", "why": f"{self.left_s:.0f} s are left, and it needs {least_s:.0f}"})
            return
        seconds, began = min(self.left_s, most_s), time.monotonic()
        print(f"\n## {name}: at most {seconds:.0f} s", flush=True)
        try:
            with ended_after(seconds):
                facts = {"status": DONE, **work(seconds)}
        except TimeUp:
            facts = {"status": "out of time", "why": f"it was ended after {seconds:.0f} s"}
        except Exception as error:  # noqa: BLE001 - whatever fails, the other stages go on
            facts = {"status": "failed", "why": f"{type(error).__name__}: {error}", "where": traceback.format_exc()}
        self._keep(name, {**facts, "took_s": time.monotonic() - began})

    def _keep(self, name: str, facts: Facts) -> None:
        self.facts[name] = facts
        self._write()
        shown = {key: value for key, value in facts.items() if key != "where"}
        print(f"{name}: {msgspec.json.encode(shown, enc_hook=repr).decode()}", flush=True)

    def _write(self) -> None:
        told = {**self._about, "stages": self.facts}
        write_atomically(self.out, msgspec.json.format(msgspec.json.encode(told, enc_hook=repr)) + b"\n")


@contextmanager
def ended_after(seconds: float) -> Iterator[None]:
    """Raise `TimeUp` in the main thread once the block has taken so long."""

    def up(signum: int, frame: FrameType | None) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, up)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
