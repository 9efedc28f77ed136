"""What holds for all tests."""

import faulthandler
import gc
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.often import A_QUARTER, ALL, USUALLY

# Started in the background by a shell, the tests and all that they start would ignore Ctrl-C, which some are about.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Several tests run at a time, so that the threads of one network would spin for the cores of the others.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Nothing that a test writes need outlive a power cut; to wait for the disk took as long as many tests themselves.
os.fsync = lambda descriptor: None

STDERR = pytest.StashKey[int]()
LONGEST_END_S = 60.0
"""How long what a test has begun may take to end after its time limit."""

# How long an example takes, or is being made, is the machine's affair, and a test is to fail every time or never.
for name, examples in ((ALL, USUALLY), (A_QUARTER, USUALLY // 4)):
    settings.register_profile(
        name,
        deadline=None,
        derandomize=True,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Before any test is imported: how often each property is tried, and how many kernels are compiled for it.

    The long form has one for each kind of plan, as users do; the short form does with three, in all processes.
    """
    short = config.option.markexpr == "not long"
    settings.load_profile(A_QUARTER if short else ALL)
    if short:
        os.environ["GEARSHIFT_WHOLE_KERNEL"] = "1"
    config.stash[STDERR] = os.dup(2)  # where it leads before tests are captured


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """In the short form no process imports modules whose tests are all long, with the packages that they are about."""
    short = config.option.markexpr == "not long" and collection_path.suffix == ".py"
    return True if short and re.search(r"^pytestmark = .*\bmark\.long\b", collection_path.read_text(), re.M) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Where not even its time limit ends a test, as within native code, its process says where it hangs, and ends.

    Then the test has failed, and another process goes on with the others. With `--timeout 0` nothing is limited.
    """
    asked_s = item.config.getoption("timeout")
    limit_s = float(item.config.getini("timeout") if asked_s is None else asked_s)
    if limit_s > 0:
        faulthandler.dump_traceback_later(limit_s + LONGEST_END_S, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What is there now stays: each full collection of garbage would look through all modules and tests again.

    A replay or a swap within a test would have it looked through from then on, as each unfreezes what is there.
    """
    gc.collect()
    gc.freeze()
    gc.unfreeze = lambda: None


def end_children(run: str, worker: str) -> None:
    """Kill what a process of the tests that has died started: it has the names of run and worker from it."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            given = process.environ()
            if (given.get("PYTEST_XDIST_TESTRUNUID"), given.get("PYTEST_XDIST_WORKER")) == (run, worker):
                process.kill()


class ModulesTogether(LoadScopeScheduling):
    """One process runs all tests of a module, as what they share is made once in each process.

    Those with networks are run by one: several would each load torch, and their threads spin for a core.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.split("::", maxsplit=1)[0]
        return "networks" if "caches" in module else module

    def remove_node(self, node: Any) -> str | None:
        """The test in which a process died has failed, and is not tried again; another process runs what is left.

        xdist hands out all that the process had, also modules whose tests have all ended, and waits for them for ever.
        """
        had = self.assigned_work.pop(node)
        ended_in = next((test for tests in had.values() for test, ended in tests.items() if not ended), None)
        for module, tests in had.items():
            tests |= {test: True for test in tests if test == ended_in}
            if not all(tests.values()):
                self.workqueue[module] = tests
        if ended_in is not None:
            end_children(node.workerinput["testrunuid"], node.workerinput["workerid"])
        for other in self.assigned_work:
            self._reschedule(other)
        return ended_in

    def _reschedule(self, node: Any) -> None:
        """A process that has collected begins a test once it knows which one is next, or that there is none."""
        if node not in self.registered_collections:
            return
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ModulesTogether:
    """How tests are shared out among processes: in their order, which begins with those that take longest."""
    config.option.loadscopereorder = False
    return ModulesTogether(config, log)
