"""Event loops: a process prepared for one with many connections, and one apart, as in a notebook."""

import asyncio
import contextvars
import gc
import resource
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from gearshift.errors import InvalidInput, require


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def allow_many_connections() -> None:
    """Raise the soft limit on open files to the hard one, at most 65,536."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft < wanted:
        with suppress(OSError, ValueError):  # a sandbox leaves the limit as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_open_files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def allow_much_load() -> None:
    """Allow many connections, and exempt existing objects from garbage collection pauses."""
    allow_many_connections()
    gc.collect()
    gc.freeze()


@contextmanager
def much_load() -> Iterator[None]:
    """As `allow_much_load`, until the context ends; where objects are exempt already, they stay so."""
    if gc.get_freeze_count():
        allow_many_connections()
        yield
        return
    allow_much_load()
    try:
        yield
    finally:
        gc.unfreeze()


T = TypeVar("T")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run_in_own_loop(main: Coroutine[Any, Any, T], *, loop_factory: LoopFactory | None = None) -> T:
    """The result of `main`, run in a thread if a loop runs here; Ctrl-C cancels `main`."""
    if not _loop_runs():
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(main)
    answer, running, given_up = Future[T](), list[asyncio.Task[Any]](), threading.Event()

    async def known() -> T:
        task = asyncio.current_task()
        assert task is not None
        running.append(task)
        if given_up.is_set():
            task.cancel()
        return await main

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                answer.set_result(runner.run(known()))
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            answer.set_exception(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name="gearshift")
    try:
        thread.start()
        return answer.result()
    except BaseException:
        given_up.set()
        for task in running:
            with suppress(RuntimeError):  # its loop has ended
                task.get_loop().call_soon_threadsafe(task.cancel)
        raise
    finally:
        if thread.ident is not None:
            thread.join()


def require_own_process(what: str) -> None:
    """Raise `InvalidInput` if `what`, which runs until a signal, would never get one here."""
    remedy = "start it in a process of its own: gearshift serve PLAN"
    require(not _loop_runs(), f"{what} would stop the event loop that runs here, as in a notebook", remedy=remedy)
    if threading.current_thread() is not threading.main_thread():
        raise InvalidInput(f"{what} is called in a thread, where no signal would end it", remedy=remedy)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
