import asyncio
import contextvars
import gc
import signal
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop

from gearshift.errors import InvalidInput
from gearshift.support.event_loop import much_load, require_own_process, run_in_own_loop

NAME = contextvars.ContextVar("NAME", default="")


async def answer() -> tuple[str, int]:
    await asyncio.sleep(0)
    return NAME.get(), threading.get_ident()


async def fail() -> None:
    raise ZeroDivisionError


def in_a_notebook(main: Coroutine[Any, Any, Any]) -> Any:
    """In a cell: the kernel's loop runs, and Ctrl-C raises `KeyboardInterrupt`."""

    async def cell() -> Any:
        return run_in_own_loop(main, loop_factory=uvloop.new_event_loop)

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(cell())
    finally:
        loop.close()


def test_without_a_loop_the_work_is_done_here() -> None:
    assert run_in_own_loop(answer())[1] == threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        run_in_own_loop(fail())


def test_beside_a_loop_that_runs_the_work_is_done_in_the_same_context() -> None:
    NAME.set("mine")
    name, thread = in_a_notebook(answer())
    assert name == "mine"
    assert thread != threading.get_ident()


def test_an_error_comes_out_of_the_thread() -> None:
    with pytest.raises(ZeroDivisionError):
        in_a_notebook(fail())


def test_ctrl_c_cancels_what_is_done_beside_a_loop() -> None:
    ended = list[str]()

    async def long() -> None:
        try:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            ended.append("in order")

    with pytest.raises(KeyboardInterrupt):
        in_a_notebook(long())
    assert ended == ["in order"]


def test_a_server_is_not_started_where_no_signal_could_end_it() -> None:
    require_own_process("a server")

    async def cell() -> None:
        require_own_process("a server")

    with pytest.raises(InvalidInput, match=r"would stop the event loop that runs here.*gearshift serve"):
        asyncio.run(cell())
    caught = list[Exception]()

    def work() -> None:
        try:
            require_own_process("a server")
        except InvalidInput as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "in a thread" in str(caught[0])


def test_objects_that_were_exempt_from_collections_stay_so(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: told.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: told.append("unfreeze"))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: told.count("freeze") - told.count("unfreeze"))
    with much_load():
        with much_load():
            pass
        assert told == ["freeze"]
    assert told == ["freeze", "unfreeze"]
