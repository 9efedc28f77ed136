"""The interface of actuators, and a chain of them that keeps threads within the cores."""

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

NUMBER = re.compile(r"\d+(\.\d+)?")
Say = Callable[[str], None]
Now = Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The result of a change: `cores` in force since `effective_ns`, requested at `asked_ns`.

    Both times are of one clock. If the cores are not the requested ones, `problem` gives the
    reason and a remedy; serving goes on with the cores in force.
    """

    cores: float
    asked_ns: int
    effective_ns: int
    problem: str = ""

    @property
    def took_s(self) -> float:
        return (self.effective_ns - self.asked_ns) / 1e9


class Actuator(Protocol):
    """Gives a worker cores; `apply` never raises, and returns once they hold or cannot."""

    name: str

    def apply(self, cores: float) -> Effect:
        """Give this many cores from now on; actuators of whole cores round up."""
        ...

    def in_force(self) -> float:
        """The present cores, even if somebody else changed them; the last known if unreadable."""
        ...


class EmulatedActuator:
    """Cores that are only a number, at most `most`."""

    name = "emulated"

    def __init__(self, *, cores: float = 1.0, most: float = math.inf, now: Now = time.monotonic_ns) -> None:
        self.cores, self._most, self._now = cores, most, now

    def apply(self, cores: float) -> Effect:
        asked_ns = self._now()
        self.cores = min(cores, self._most)
        problem = "" if self.cores == cores else f"{cores:g} cores were asked for, there are {self._most:g}"
        return Effect(cores=self.cores, asked_ns=asked_ns, effective_ns=self._now(), problem=problem)

    def in_force(self) -> float:
        return self.cores


class ActuatorChain:
    """Actuators in order: quota, affinity, threads to grow; the reverse to shrink.

    So there are never more threads than cores: an extra thread delays the others at every step
    (two threads on one free core were measured 12 times slower than one). A later actuator is
    asked for no more than an earlier one got. Each problem is reported once until it is gone.
    """

    name = "chain"

    def __init__(self, actuators: Sequence[Actuator], *, cores: float, say: Say) -> None:
        self._actuators, self.cores, self._say = tuple(actuators), cores, say
        self._problems: dict[str, str] = {}

    def apply(self, cores: float) -> Effect:
        """Apply all; the effect has the slowest's time, and the fewest cores in force."""
        grows = cores >= self.cores
        effects, reached = [], cores
        for actuator in self._actuators if grows else reversed(self._actuators):
            effect = actuator.apply(reached)
            self._tell(actuator.name, effect.problem)
            effects.append(effect)
            if grows:
                reached = min(reached, effect.cores)
        self.cores = min(effect.cores for effect in effects)
        return Effect(
            cores=self.cores,
            asked_ns=effects[0].asked_ns,
            effective_ns=max(effect.effective_ns for effect in effects),
            problem="; ".join(filter(None, (effect.problem for effect in effects))),
        )

    def in_force(self) -> float:
        return min(actuator.in_force() for actuator in self._actuators)

    def _tell(self, name: str, problem: str) -> None:
        kind = NUMBER.sub("", problem)
        if kind and self._problems.get(name) != kind:
            self._say(f"{name}: {problem}; serving goes on with the cores there are")
        self._problems[name] = kind
