"""An event loop in a thread of its own, for callers that wait, such as a database's threads."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """The loop runs from `start` until `close`, or until the process ends.

    Workers are children of its thread, and end with it.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="gearshift-bulk", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T], calls: "Calls | None" = None) -> "Future[T]":
        """Begin `work`; to cancel the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work if calls is None else calls.counted(work), self._loop)

    def stop(self, calls: "Calls") -> None:
        """End all work of `calls`, and begin no more of it."""
        with contextlib.suppress(RuntimeError):  # the loop was closed, and its work with it
            self._loop.call_soon_threadsafe(calls.stop)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; Ctrl-C cancels it."""
        return result_of(self.submit(work))

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            if not task.cancelling():  # a second time would end what it does to end, and leave a worker behind
                task.cancel()
        self._loop.run_until_complete(_ended(tasks))
        self._loop.close()


class Calls:
    """Work that one caller began, to be stopped together.

    A future is not enough for this: a signal may come after the work has begun, and before the
    caller holds its future.
    """

    def __init__(self) -> None:
        self.running: set[asyncio.Task[Any]] = set()
        self._stopped = False

    async def counted(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        if self._stopped:
            work.close()
            raise asyncio.CancelledError
        self.running.add(task)
        try:
            return await work
        finally:
            self.running.discard(task)

    def stop(self) -> None:
        """Cancel what runs, and what comes later; to be called in the loop's thread."""
        self._stopped = True
        for task in self.running:
            task.cancel()


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(2):  # until connections that were aborted are closed
        await asyncio.sleep(0)


def result_of(future: "Future[T]") -> T:
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def together(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results; the first error cancels the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
