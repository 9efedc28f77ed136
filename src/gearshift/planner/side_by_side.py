"""Run planners in parallel processes, none of which outlives the caller."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess

import msgspec

from gearshift.planner.compare import (
    BASELINES,
    COCKTAIL,
    INTERRUPTED,
    Comparison,
    Run,
    cocktail_jobs,
    compared,
    count_interrupted,
    died,
    ended,
    rows_of_grid,
    run_planner,
    worst_accuracy,
)
from gearshift.planner.space.request import PlanRequest, Progress, Request, silent
from gearshift.simulator.warm_up import warm_up
from gearshift.support.numbers import plain
from gearshift.support.processors import usable_processors

_ENDING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def compare_planners(
    names: Sequence[str],
    requests: Sequence[Request],
    *,
    baselines: Sequence[str] | None = None,
    accuracies: Sequence[float] | None = None,
    processes: int | None = None,
    progress: Progress = silent,
) -> Comparison:
    """Run every planner on every request, all of one kind and shape, and Cocktail+ where it is named.

    Where it is interrupted, Cocktail+ is left out, of which no cell is finished then.
    """
    planned, at_once = [name for name in dict.fromkeys(names) if name != COCKTAIL], processes or usable_processors()
    runs = run_side_by_side(
        [(name, request) for name in planned for request in requests], processes=at_once, progress=progress
    )
    first, worst = requests[0], worst_accuracy(requests[0])
    if isinstance(first, PlanRequest) and COCKTAIL in names and not count_interrupted(runs):
        latencies_s = sorted({request.latency_s for request in requests})
        cells = cocktail_jobs(first, rows_of_grid(runs, worst, accuracies), latencies_s)
        with suppress(KeyboardInterrupt):
            runs += run_side_by_side(cells, processes=at_once, progress=progress)
    against = BASELINES[first.planned_by] if baselines is None else baselines
    return compared(runs, worst, baselines=against, accuracies=accuracies)


def run_side_by_side(jobs: Sequence[tuple[str, Request]], *, processes: int, progress: Progress = silent) -> list[Run]:
    """Run each planner on its request in a process, at most `processes` at once; results in the order of `jobs`.

    A process that dies gives a run with an error. At Ctrl-C finished runs
    are kept, and the others have an error of kind `interrupted`; without a finished one it is raised.
    However this ends, no process is left.
    """
    context = multiprocessing.get_context("spawn")
    waiting, running, done = deque(enumerate(jobs)), dict[Connection, tuple[int, SpawnProcess]](), dict[int, Run]()
    progress("compiling", 0.0)
    graphs = any(request.planned_by == ("rows", "graph") for _, request in jobs)
    warm_up(("task", "then") if graphs else ("task",))  # once here, or every process would compile
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                with interrupts_held():
                    number, job = waiting.popleft()
                    receiver, process = _start(context, job)
                    running[receiver] = number, process
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                number, process = running[ready]
                done[number] = _answer(ready, process, jobs[number])
                del running[ready]
                progress(f"{len(done)} of {len(jobs)} runs: {_said(done[number])}", len(done) / len(jobs))
    except KeyboardInterrupt:
        if not done:
            raise
        progress(f"interrupted: {len(done)} of {len(jobs)} runs are kept", len(done) / len(jobs))
        done |= {number: ended(*job, INTERRUPTED) for number, job in enumerate(jobs) if number not in done}
    finally:
        for receiver, (_, process) in running.items():
            process.kill()
            process.join()
            receiver.close()
    return [done[number] for number in range(len(jobs))]


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Delay Ctrl-C, and signals that end a verb like it, until a process that is being started is known.

    The process ignores Ctrl-C, as it inherits the mask. In this process a thread of native code may
    still take the signal, and Python would interrupt the main thread, so a handler keeps it until the end.
    """
    resource_tracker.ensure_running()  # the first process would start it, which lifts the mask
    held: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    delayed = [one for one in _ENDING if is_main and callable(signal.getsignal(one))]
    handlers = {one: signal.signal(one, lambda number, _: held.append(number)) for one in delayed}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        for one, handler in handlers.items():
            signal.signal(one, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if held:
        signal.raise_signal(held[0])


def _start(context: SpawnContext, job: tuple[str, Request]) -> tuple[Connection, SpawnProcess]:
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(sender, *job))
    process.start()
    sender.close()
    return receiver, process


def _answer(receiver: Connection, process: SpawnProcess, job: tuple[str, Request]) -> Run:
    try:
        return msgspec.json.decode(receiver.recv_bytes(), type=Run)
    except (EOFError, OSError):
        process.join()
        return died(*job, f"its process ended with status {process.exitcode}")
    finally:
        process.join()
        receiver.close()


def _work(sender: Connection, planner: str, request: Request) -> None:
    """The process's main function. Output of native code goes to standard error."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.dup2(2, 1)
    sender.send_bytes(msgspec.json.encode(run_planner(planner, request)))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _said(run: Run) -> str:
    what = (
        f"{run.planner}, {run.devices:.4g} device{'s' * (run.devices != 1)}, {plain(run.latency_objective_s * 1e3)} ms"
    )
    return f"{what}: no plan" if run.accuracy is None else f"{what}: accuracy {run.accuracy:.4f}"
