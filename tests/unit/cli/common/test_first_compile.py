import logging
import threading
from typing import Any

import pytest

from gearshift.cli.common import first_compile
from gearshift.cli.common.first_compile import COMPILING, LOGGER, Meanwhile, compiled_meanwhile, compiling_told


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_compile, "EVERY_S", 0.001)


def test_a_compilation_is_told_until_there_is_other_progress() -> None:
    told: list[str] = []
    is_told = threading.Event()

    def tell(what: str, share: float) -> None:
        told.append(what)
        if what == COMPILING:
            is_told.set()

    with compiling_told(tell) as shown:
        shown("reading", 0.0)
        logging.getLogger(LOGGER).warning("compiling")
        assert is_told.wait(10)
        shown("planning", 0.5)
        after = len(told)
    assert told[0] == "reading"
    assert told[after - 1 :] == ["planning"]


def test_the_share_of_a_compilation_rises_and_never_says_that_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_compile, "ABOUT_S", 0.01)
    shares: list[float] = []
    enough = threading.Event()

    def tell(what: str, share: float) -> None:
        shares.append(share)
        if len(shares) == 30:
            enough.set()

    with compiling_told(tell):
        logging.getLogger(LOGGER).warning("compiling")
        assert enough.wait(10)
    assert shares == sorted(shares)
    assert shares[-1] == first_compile.MOST_SHARE


def test_nothing_is_compiled_meanwhile_where_the_cache_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_compile, "is_ready", lambda kernel: True)
    monkeypatch.setattr(first_compile, "KERNEL", "no.module.of.this.name")
    meanwhile = Meanwhile()
    meanwhile.begin()
    told: list[str] = []
    meanwhile.wait(lambda what, share: told.append(what))
    meanwhile.end()
    assert told == []


def test_a_process_that_compiles_meanwhile_is_waited_for_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_compile, "is_ready", lambda kernel: False)
    monkeypatch.setattr(first_compile, "KERNEL", "timeit")
    meanwhile = Meanwhile()
    meanwhile.begin()
    told: list[str] = []
    meanwhile.wait(lambda what, share: told.append(what))
    meanwhile.end()
    assert set(told) == {COMPILING}


def test_a_process_that_compiles_meanwhile_ends_with_the_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_compile, "is_ready", lambda kernel: False)
    meanwhile = Meanwhile()
    meanwhile.begin()
    process = meanwhile._process
    assert process is not None
    meanwhile.end()
    assert process.returncode is not None


@pytest.mark.parametrize(
    ("verb", "begun"),
    [
        ("plan", ("gears", "refinement")),
        ("explain", ("gears",)),
        ("simulate", ("gears",)),
        ("serve", None),
        (None, None),
    ],
)
def test_a_verb_that_simulates_begins_with_what_it_needs_at_its_defaults(
    monkeypatch: pytest.MonkeyPatch, verb: str, begun: tuple[str, ...] | None
) -> None:
    events: list[Any] = []
    monkeypatch.setattr(Meanwhile, "begin", lambda self, kernels: events.append(kernels))
    monkeypatch.setattr(Meanwhile, "end", lambda self: events.append("end"))
    with compiled_meanwhile(verb):
        events.append("run")
    assert events == [*([] if begun is None else [begun]), "run", "end"]
