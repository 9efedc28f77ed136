"""Lookups in a process of their own.  A stopped process is one whose lookup takes long; tests wait for its answers."""

import gc
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch

from gearshift.caches.network.chain import Steps
from gearshift.caches.network.learned_cache import LearnedCache, learned_cache, make_predictor
from gearshift.caches.running.cached_model import CachedModel
from gearshift.caches.running.concurrent_lookups import LookupThread, concurrent_exits, divided_cores
from gearshift.caches.running.lookup_process import LONGEST_LOOKUP_S, LookupProcess, ProcessBatch, start_lookups
from gearshift.caches.running.lookup_server import MOST_BYTES
from gearshift.errors import InvalidInput, ModelFailed
from tests.unit.caches.digit_networks import BLOCKS, built, digits, network

LONGEST_S = 30.0
pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


def started(longest_s: float = LONGEST_LOOKUP_S) -> LookupProcess:
    cores = divided_cores(1)
    assert cores is not None
    return LookupProcess(cores.lookups, longest_s=longest_s)


@contextmanager
def process(caches: dict[int, LearnedCache], *, longest_s: float = LONGEST_LOOKUP_S) -> Iterator[LookupProcess]:
    one = started(longest_s)
    try:
        one.use(caches)
        yield one
    finally:
        one.close()


@pytest.fixture(scope="module")
def running() -> Iterator[LookupProcess]:
    """One for all tests after which it still runs; each gives it other caches."""
    one = started()
    yield one
    one.close()


def pid_of(one: LookupProcess) -> int:
    return one.process.pid


def cache_for(width: int, *, hits: bool, classes: int = 3) -> LearnedCache:
    """One that always hits, or never."""
    with torch.random.fork_rng():
        torch.manual_seed(width)
        made = learned_cache("FC(16)", (width,), classes).requires_grad_(False).eval()
    made.threshold.fill_(-1e9 if hits else 1e9)
    return made


def wait_until(what: Callable[[], bool]) -> None:
    ends = time.monotonic() + LONGEST_S
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.01)


def batch_of(one: LookupProcess) -> ProcessBatch:
    batch = one.begin()
    assert batch is not None
    return batch


class Waits:
    """Finds everything before the model goes on, so that timing decides nothing."""

    def __init__(self, batch: ProcessBatch) -> None:
        self._batch = batch
        self.pending, self.ask, self.end = True, batch.ask, batch.end

    def found(self, *, wait: bool = False) -> object:
        return self._batch.found(wait=True)


@pytest.mark.parametrize("rows", [1, 200])
def test_rows_have_the_answers_that_they_have_in_line_and_leave_a_segment_later(
    running: LookupProcess, rows: int
) -> None:
    images = digits()[0][1300 : 1300 + rows]
    chain, caches = built().model.chain, built().model.caches
    line = built().model.predict(images)
    with torch.inference_mode():
        base = torch.softmax(network()(torch.from_numpy(images)), 1).numpy()
    steps = Steps(chain).with_caches(caches)
    left = np.full(rows, -1)
    running.use(caches)
    lookups = Waits(batch_of(running))
    for which, scores, segment in concurrent_exits(  # type: ignore[arg-type]
        steps, lookups, torch.from_numpy(images), logits=True
    ):
        left[which] = segment
        early = (line["exit_segment"][which] < segment) & (segment < len(chain) - 1)
        assert np.allclose(scores[early], line["scores"][which][early], atol=1e-5)
        assert np.allclose(scores[~early], base[which][~early], atol=1e-5)
    last = len(chain) - 1
    assert (left == np.where(line["exit_segment"] + 1 < last, line["exit_segment"] + 1, last)).all()
    assert rows == 1 or len(set(left)) > 1  # so that the batch was compacted


def test_a_model_answers_every_batch_whatever_its_size_and_agrees_with_the_module_at_least_as_in_line() -> None:
    images = digits()[0][1300:1500]
    model = CachedModel(built().model.chain, built().model.caches, logits=True, lookups="beside")
    with torch.inference_mode():
        base = torch.softmax(network()(torch.from_numpy(images)), 1).numpy()
    line = built().model.predict(images)
    for size in (1, 200, 3, 64):
        said = model.predict(images[:size])
        early = said["exit_segment"] < len(model.chain) - 1
        right = np.where(early[:, None], line["scores"][:size], base[:size])
        assert np.allclose(said["scores"], right, atol=1e-4)
        assert (said["exit_segment"] >= line["exit_segment"][:size]).all()
    assert isinstance(model.concurrent_lookups(), LookupProcess)
    assert model.lookups == "beside"


@pytest.mark.parametrize("own", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_first_batch_that_the_module_does_not_take_leaves_later_ones_looked_up_beside_it(own: bool) -> None:
    images = digits()[0][1300:1304]
    caches = {layer: deepcopy(cache) for layer, cache in built().model.caches.items()}
    for cache in caches.values():
        cache.made_as = None if own else cache.made_as
    model = CachedModel(built().model.chain, caches, logits=True, lookups="beside")
    with pytest.raises((InvalidInput, RuntimeError)):
        model.predict(images[:, :, :1, :1].repeat(3, axis=1))
    assert len(model.predict(images)["scores"]) == 4
    beside = model.concurrent_lookups()
    assert isinstance(beside, LookupThread if own else LookupProcess)
    batch = beside.begin()
    assert batch is not None
    batch.end()


def test_a_new_version_is_looked_up_from_the_next_batch_on(running: LookupProcess) -> None:
    first, second = cache_for(4, hits=True), cache_for(6, hits=False, classes=5)
    running.use({0: first})
    for layer, cache, width in ((0, first, 4), (2, second, 6)):
        running.use({layer: cache})
        batch = batch_of(running)
        given = torch.randn(3, width)
        batch.ask(layer, given, np.arange(3))
        looked = batch.found(wait=True)
        batch.end()
        assert looked is not None
        probabilities, hits = cache(given)
        assert np.allclose(looked.probabilities[looked.hits], probabilities[hits], atol=1e-6)
        assert looked.hits.tolist() == hits.tolist()


def test_what_a_batch_gave_up_disturbs_no_later_one_and_is_not_begun(running: LookupProcess) -> None:
    cache = cache_for(4, hits=True)
    running.use({0: cache})
    os.kill(pid_of(running), signal.SIGSTOP)
    given_up = batch_of(running)
    for _ in range(20):
        given_up.ask(0, torch.full((2, 4), torch.nan), np.arange(2))
    assert given_up.found() is None
    given_up.end()
    batch = batch_of(running)
    given = torch.randn(2, 4)
    batch.ask(0, given, np.arange(2))
    os.kill(pid_of(running), signal.SIGCONT)
    looked = batch.found(wait=True)
    assert looked is not None
    assert np.allclose(looked.probabilities, cache(given)[0].numpy(), atol=1e-6)
    assert not batch.pending
    assert cache.not_finite == 0
    batch.end()


def ask_until_full(one: LookupProcess) -> None:
    """So many lookups that a stopped process is far behind."""
    for _ in range(500):
        batch = batch_of(one)
        batch.ask(0, torch.zeros(1, 4), np.arange(1))
        batch.end()
    assert not batch.pending


def test_a_process_far_behind_is_asked_for_nothing_more_until_it_has_caught_up(running: LookupProcess) -> None:
    running.use({0: cache_for(4, hits=True)})
    os.kill(pid_of(running), signal.SIGSTOP)
    ask_until_full(running)
    behind = int(running.last_answered[0])
    os.kill(pid_of(running), signal.SIGCONT)
    wait_until(lambda: int(running.last_answered[0]) > behind + 100)
    batch = batch_of(running)
    batch.ask(0, torch.zeros(1, 4), np.arange(1))
    assert batch.found(wait=True) is not None
    batch.end()


@pytest.mark.long
def test_a_process_far_behind_that_cannot_be_told_of_other_caches_is_ended() -> None:
    cache = cache_for(4, hits=True)
    with process({0: cache}) as one:
        os.kill(pid_of(one), signal.SIGSTOP)
        ask_until_full(one)
        one.use({1: cache})
        assert one.why_ended == "is far behind"
        assert one.process.returncode == -signal.SIGKILL
        assert one.begin() is None


@pytest.mark.long
def test_a_process_that_does_nothing_for_too_long_is_ended() -> None:
    with process({0: cache_for(4, hits=True)}, longest_s=0.0) as one:
        os.kill(pid_of(one), signal.SIGSTOP)
        batch = batch_of(one)
        for _ in range(500):
            batch.ask(0, torch.zeros(1, 4), np.arange(1))
        batch.end()
        while (batch := one.begin()) is not None:
            batch.ask(0, torch.zeros(1, 4), np.arange(1))
            batch.end()
        assert one.why_ended == "is far behind"


@pytest.mark.long
def test_who_waits_for_a_lookup_does_not_wait_for_ever() -> None:
    with process({0: cache_for(4, hits=True)}, longest_s=0.0) as one:
        os.kill(pid_of(one), signal.SIGSTOP)
        batch = batch_of(one)
        batch.ask(0, torch.zeros(1, 4), np.arange(1))
        assert batch.found(wait=True) is None
        batch.end()
        assert one.why_ended == "has said nothing for 0 s"


def test_hidden_outputs_beyond_the_memory_are_not_looked_up_and_nor_are_those_that_follow(
    running: LookupProcess,
) -> None:
    running.use({0: cache_for(4, hits=True)})
    batch = batch_of(running)
    batch.ask(0, torch.empty(1).expand(MOST_BYTES // 16, 4), np.arange(1))
    batch.ask(0, torch.zeros(1, 4), np.arange(1))
    assert not batch.pending
    batch.end()


def test_rows_that_are_not_finite_are_counted_in_the_process_of_the_model(running: LookupProcess) -> None:
    cache = cache_for(4, hits=True)
    running.use({0: cache})
    batch = batch_of(running)
    batch.ask(0, torch.tensor([[torch.nan] * 4, [1.0] * 4]), np.arange(2))
    looked = batch.found(wait=True)
    batch.end()
    assert looked is not None
    assert looked.hits.tolist() == [False, True]
    assert cache.not_finite == 1


def test_the_process_answers_by_the_classes_that_a_cache_is_set_for(running: LookupProcess) -> None:
    cache = cache_for(4, hits=True)
    cache.prior.copy_(torch.tensor([2.0, -1.0, 0.5]))
    row = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    running.use({0: cache})
    batch = batch_of(running)
    batch.ask(0, row, np.arange(1))
    looked = batch.found(wait=True)
    batch.end()
    assert looked is not None
    with torch.no_grad():
        expected = torch.softmax(cache.predictor(row) + cache.prior, dim=1)
    assert np.allclose(looked.probabilities, expected, atol=1e-6)


def test_a_lookup_that_fails_fails_the_batch_and_no_other(running: LookupProcess) -> None:
    running.use({0: cache_for(4, hits=True)})
    batch = batch_of(running)
    batch.ask(0, torch.zeros(1, 5), np.arange(1))
    with pytest.raises(ModelFailed, match=r"a lookup of learned caches failed: .* not made for hidden outputs"):
        batch.found(wait=True)
    batch.end()
    batch = batch_of(running)
    batch.ask(0, torch.zeros(1, 4), np.arange(1))
    assert batch.found(wait=True) is not None
    batch.end()


def test_while_one_batch_is_looked_up_another_is_not(running: LookupProcess) -> None:
    running.use({0: cache_for(4, hits=True)})
    batch = batch_of(running)
    assert running.begin() is None
    batch.end()
    batch_of(running).end()


@pytest.mark.long
def test_when_the_process_is_killed_within_a_batch_the_model_answers_and_lookups_go_on_in_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    images = digits()[0][1300:1310]
    model = CachedModel(built().model.chain, built().model.caches, logits=True, lookups="beside")
    one = model.concurrent_lookups()
    assert isinstance(one, LookupProcess)
    os.kill(pid_of(one), signal.SIGSTOP)
    block = model.chain.module.get_submodule(BLOCKS[1])
    killing = block.register_forward_pre_hook(lambda *_: one.process.kill())
    try:
        rows = np.concatenate([rows for rows, _ in model.exits(images)])
    finally:
        killing.remove()
    assert one.process.wait(LONGEST_S) == -signal.SIGKILL
    assert sorted(rows) == list(range(10))
    with caplog.at_level(logging.WARNING):
        said = model.predict(images)
        model.predict(images)
    assert model.lookups == "inline"
    assert caplog.text.count("looked up in line from now on, as their process has ended") == 1
    assert said["exit_segment"].tolist() == built().model.predict(images)["exit_segment"].tolist()


def descriptors() -> set[str]:
    return {file.name for file in Path("/proc/self/fd").iterdir() if file.exists()}


@pytest.mark.parametrize(
    ("executable", "why"),
    [("/nowhere", "cannot be started (No such file or directory)"), ("/bin/true", "has ended")],
)
def test_where_no_process_begins_lookups_run_in_line_and_nothing_is_left_behind(
    executable: str, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    images = digits()[0][1300:1310]
    line = built().model.predict(images)
    model = CachedModel(built().model.chain, built().model.caches, logits=True, lookups="beside")
    monkeypatch.setattr(sys, "executable", executable)
    gc.collect()  # what earlier tests left goes now
    before = descriptors()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert model.predict(images)["exit_segment"].tolist() == line["exit_segment"].tolist()
    assert caplog.text.count(f"learned caches are looked up in line, as their process {why}") == 1
    assert model.lookups == "inline"
    assert descriptors() <= before


@pytest.mark.long
def test_a_process_that_cannot_be_given_other_caches_is_ended() -> None:
    cache = cache_for(4, hits=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with process({0: cache}) as one:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            one.use({1: cache})
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert one.why_ended == "cannot be given other caches (Too many open files)"
        assert one.begin() is None


@pytest.mark.long
def test_a_model_that_is_forgotten_ends_its_process() -> None:
    one = LookupProcess(frozenset(os.sched_getaffinity(0)))
    child = one.process
    del one
    assert child.returncode is not None


PARENT = """
import os, sys, time
from gearshift.caches.running.lookup_process import LookupProcess
one = LookupProcess(frozenset(os.sched_getaffinity(0)))
print(one.process.pid, flush=True)
time.sleep(600)
"""


def test_ctrl_c_is_for_the_parent_alone(running: LookupProcess) -> None:
    running.use({0: cache_for(4, hits=True)})
    os.kill(pid_of(running), signal.SIGINT)
    batch = batch_of(running)
    batch.ask(0, torch.zeros(1, 4), np.arange(1))
    assert batch.found(wait=True) is not None
    batch.end()


@pytest.mark.long
def test_a_process_that_hangs_ends_when_the_group_of_its_parent_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, signal.SIGSTOP)
        os.killpg(parent.pid, signal.SIGKILL)
    wait_until(lambda: not _runs(child))


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_process_and_its_memory_end_with_their_parent(how: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        maps = Path(f"/proc/{child}/maps").read_text().splitlines()
        parent.send_signal(how)
    wait_until(lambda: not _runs(child))
    shared = {line.split(maxsplit=5)[5] for line in maps if "/dev/shm/" in line}
    assert not [path for path in shared if Path(path).exists()]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_predictors_of_the_users_own_are_looked_up_in_a_thread() -> None:
    own = learned_cache("mine", (4,), 3, {"mine": lambda shape, classes: make_predictor("FC(16)", shape, classes)})
    assert isinstance(start_lookups(torch.device("cpu"), 1, [own, cache_for(4, hits=True)]), LookupThread)
