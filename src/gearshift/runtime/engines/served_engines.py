"""The parts of a service of language models: its engines, and the certainty of their answers."""

from collections.abc import Callable, Sequence
from typing import Protocol

from gearshift.policies.engines.deciding import DECIDES_BY_ID
from gearshift.profiles.engines.certainty import TokenCertainty
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.runtime.engines.upstream.call import Fault
from gearshift.runtime.engines.upstream.link import EngineLink

CertaintyOf = Callable[[str, TokenCertainty, int, int | None], float]
"""The certainty of a model's tokens after a prompt of so many, for a stage that decides there (None: at the end)."""


class Engine(Protocol):
    """A replica of the plan; `name` is its model's at the endpoint."""

    @property
    def link(self) -> EngineLink: ...

    @property
    def name(self) -> str: ...


class Engines(Protocol):
    """The replicas of a plan, in the order of its tables."""

    @property
    def all(self) -> Sequence[Engine]: ...

    def suspect(self, replica: int, fault: Fault) -> None:
        """It could not be reached: look whether it is there."""
        ...


def models_by_certainty(tables: EngineTables) -> list[bool]:
    """For each model whether a gear has it at a stage that decides by its certainty."""
    found = [False] * len(tables.models)
    for gear, stages in enumerate(tables.stage_count.tolist()):
        for row in range(gear * tables.most_stages, gear * tables.most_stages + stages - 1):
            if tables.decide_at[row] != DECIDES_BY_ID:
                found[int(tables.stage_models[row])] = True
    return found
