"""That it decides as others do, `tests/conformance` shows, whose short form runs in it."""

from typing import Any

import numba
import pytest

from gearshift.clock import NS_PER_S
from gearshift.simulator.kernel import loop as kernel
from gearshift.simulator.warm_up import warm_up
from gearshift.simulator.whole_kernel import WHOLE_KERNEL

GRAPH = ("task", "then")


def test_it_serves_every_plan_but_the_plainest_and_those_that_refine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    run: Any = kernel.run

    def note(*arguments: Any) -> None:
        asked.append(tuple(map(numba.typeof, arguments)))
        run(*arguments)

    monkeypatch.setenv(WHOLE_KERNEL, "1")
    monkeypatch.setattr(kernel, "run", note)
    warm_up()
    warm_up(deadline_ns=NS_PER_S)
    for deadline_ns in (None, NS_PER_S):
        warm_up(GRAPH, deadline_ns=deadline_ns)
    assert len(set(asked)) == 2
    for deadline_ns in (None, NS_PER_S):
        warm_up(refines=True, deadline_ns=deadline_ns)
    assert len(set(asked)) == 3
