"""Lookups beside the model.  Segments and caches wait for one another, so that each test has one order of events."""

import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from copy import deepcopy
from threading import Event

import numpy as np
import pytest
import torch

from gearshift.caches.building.choosing import at_ends, leaves_after
from gearshift.caches.building.problem import Problem, joint_outcome
from gearshift.caches.network.chain import Chain, Steps
from gearshift.caches.network.tracing import chain_of
from gearshift.caches.running.cached_model import CachedModel
from gearshift.caches.running.concurrent_lookups import LookupThread, concurrent_exits, divided_cores, overwritten
from tests.unit.caches.digit_networks import BLOCKS, built, digits, network

LONGEST_S = 10.0
Left = list[tuple[list[int], list[int], int]]
"""Rows, the class said of each, and the segment, exit by exit."""


class Watched(LookupThread):
    """Keeps what was asked."""

    def __init__(self) -> None:
        super().__init__(frozenset(), torch.device("cpu"))
        self.asked: list[Future[object]] = []

    def submit(self, *args: object) -> Future[object]:  # type: ignore[override]
        self.asked.append(super().submit(*args))  # type: ignore[arg-type]
        return self.asked[-1]

    def found(self, number: int) -> Callable[[], object]:
        """To wait for a lookup."""
        return lambda: self.asked[number].result(LONGEST_S)


class Adds(torch.nn.Module):
    """Adds 1, after whatever it has to wait for."""

    def __init__(self, wait: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.wait, self.rows = wait, list[int]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.wait()
        self.rows.append(len(x))
        return x + 1


class HitsFrom(torch.nn.Module):
    """A cache that hits where the first value is at least a bound, and says a class; after whatever it waits for."""

    def __init__(self, bound: float, says: int, wait: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.bound, self.says, self.wait, self.seen = bound, says, wait, list[list[float]]()
        self.made_as = None  # so that it is looked up in a thread

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.wait()
        self.seen.append(hidden[:, 0].tolist())
        return torch.eye(4)[[self.says] * len(hidden)], hidden[:, 0] >= self.bound


def steps(*waits: Callable[[], object]) -> tuple[Chain, list[Adds]]:
    adding = [Adds() for _ in waits]
    chain = chain_of(torch.nn.Sequential(*adding), [str(k) for k in range(len(adding))])
    for add, wait in zip(adding, waits, strict=True):
        add.wait, add.rows = wait, []
    return chain, adding


def nothing() -> None:
    pass


def leaving(chain: Chain, caches: dict[int, HitsFrom], thread: LookupThread, *first: float) -> Left:
    """What happens to rows with these first values."""
    rows = torch.tensor([[value, 0.0, 0.0, 0.0] for value in first])
    thread.use(caches)  # type: ignore[arg-type]
    found = concurrent_exits(Steps(chain).with_caches(caches), thread.begin(), rows, logits=True)
    return [(rows.tolist(), said.argmax(axis=1).tolist(), segment) for rows, said, segment in found]


def test_segments_that_nobody_can_leave_between_run_as_one() -> None:
    chain, adding = steps(nothing, nothing, nothing, nothing)
    walk = Steps(chain).with_caches({1})
    ends = [walk.after(before, pending=pending)[0] for before in (-1, 0, 1, 2) for pending in (False, True)]
    assert ends == [1, 0, 1, 1, 3, 2, 3, 3]
    run = walk.after(1)[1]
    assert run(torch.zeros(1, 4)).tolist() == [[2.0] * 4]
    assert [len(add.rows) for add in adding] == [0, 0, 1, 1]


def test_spans_begin_behind_caches_alone_and_stay_while_caches_come_and_go() -> None:
    chain, _ = steps(nothing, nothing, nothing, nothing, nothing, nothing)
    first = Steps(chain).with_caches({1})
    assert {begin: end for begin, (end, _) in first.spans.items()} == {0: 1, 2: 5}
    assert first.after(2)[0] == 3
    second = first.with_caches({1, 4})
    assert {begin: end for begin, (end, _) in second.spans.items()} == {0: 1, 2: 4, 5: 5}
    assert second.spans[0] is first.spans[0]
    assert second.with_caches({1, 4}).spans == second.spans


def test_a_hit_that_is_found_in_a_later_segment_stops_the_model_at_its_end() -> None:
    thread = Watched()
    chain, adding = steps(nothing, thread.found(0), nothing, nothing)
    assert leaving(chain, {0: HitsFrom(1, says=3)}, thread, 0) == [([0], [3], 1)]
    assert [add.rows for add in adding] == [[1], [1], [], []]


def test_a_lookup_that_outlasts_the_model_changes_nothing_and_those_behind_it_never_begin() -> None:
    thread, over = Watched(), Event()
    slow, behind = HitsFrom(0, says=3, wait=lambda: over.wait(LONGEST_S)), HitsFrom(0, says=2)
    chain, _ = steps(nothing, nothing, nothing)
    assert leaving(chain, {0: slow, 1: behind}, thread, 5) == [([0], [0], 2)]
    over.set()
    thread.found(0)()
    assert thread.asked[1].cancelled()
    assert leaving(chain, {}, thread, 5) == [([0], [0], 2)]
    assert behind.seen == []


def test_a_lookup_that_is_overtaken_is_finished_first_and_its_hit_comes_first() -> None:
    thread, second_asked = Watched(), Event()
    first = HitsFrom(1, says=3, wait=lambda: second_asked.wait(LONGEST_S))
    chain, _ = steps(nothing, nothing, lambda: (second_asked.set(), thread.found(1)()), nothing)
    assert leaving(chain, {0: first, 1: HitsFrom(0, says=2)}, thread, 0, -3, 0) == [([0, 2], [3, 3], 2), ([1], [1], 3)]
    second_asked.clear()
    thread.asked.clear()
    both = {0: first, 1: HitsFrom(-5, says=2)}
    assert leaving(chain, both, thread, 0, -3) == [([0], [3], 2), ([1], [2], 2)]


def test_rows_that_hit_leave_and_the_rest_goes_on_compacted() -> None:
    thread = Watched()
    chain, adding = steps(nothing, thread.found(0), thread.found(1), nothing)
    caches = {0: HitsFrom(5, says=3), 1: HitsFrom(3, says=2)}
    left = leaving(chain, caches, thread, 0, 5, 1, 9, 2)
    assert left == [([1, 3], [3, 3], 1), ([2, 4], [2, 2], 2), ([0], [0], 3)]
    assert [add.rows for add in adding] == [[5], [5], [3], [1]]
    assert caches[1].seen == [[2, 3, 4]]


def test_whatever_the_timing_a_row_has_the_answer_of_its_first_hit_or_of_the_base_model() -> None:
    images = digits()[0][1300:1500]
    chain, caches = built().model.chain, built().model.caches
    line = built().model.predict(images)
    with torch.inference_mode():
        base = torch.softmax(network()(torch.from_numpy(images)), 1).numpy()
    thread = LookupThread(frozenset(), torch.device("cpu"))
    seen = np.zeros(len(images), dtype=np.int64)
    given = torch.from_numpy(images)
    thread.use(caches)
    steps = Steps(chain).with_caches(caches)
    for rows, scores, segment in concurrent_exits(steps, thread.begin(), given, logits=True):
        seen[rows] += 1
        early = line["exit_segment"][rows] <= segment
        assert early.all()
        as_in_line = np.isclose(scores, line["scores"][rows], atol=1e-4).all(axis=1)
        as_base = np.isclose(scores, base[rows], atol=1e-4).all(axis=1)
        assert (as_base if segment == len(chain) - 1 else as_in_line).all()
    assert (seen == 1).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_rows_have_the_answers_that_they_have_in_line() -> None:
    images = digits()[0][1300:1500]
    chain = chain_of(deepcopy(network()).cuda(), BLOCKS)
    caches = {layer: deepcopy(one).cuda() for layer, one in built().model.caches.items()}
    line = CachedModel(chain, caches, logits=True).predict(images)
    model = CachedModel(chain, caches, logits=True, lookups="beside")
    for _ in range(20):
        said = model.predict(images)
        early = said["exit_segment"] < len(chain) - 1
        assert np.allclose(said["scores"][early], line["scores"][early], atol=1e-3)
        assert (said["exit_segment"] >= line["exit_segment"]).all()


def test_a_lookup_that_fails_fails_the_batch() -> None:
    thread = Watched()
    chain, _ = steps(nothing, lambda: thread.asked[0].exception(LONGEST_S), nothing)

    def fails() -> None:
        raise ValueError("no memory")

    with pytest.raises(ValueError, match="no memory"):
        leaving(chain, {0: HitsFrom(0, says=1, wait=fails)}, thread, 1)


def test_outputs_that_later_segments_write_over_are_copied_for_lookups() -> None:
    module = torch.nn.Sequential(
        *(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.Flatten(), torch.nn.ReLU(inplace=True))),
        *(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)),
    )
    chain = chain_of(module, ["0", "1", "2"])
    assert overwritten(chain, torch.ones(1, 4)) == {0}
    assert overwritten(built().model.chain, torch.from_numpy(digits()[0][:1])) == set()
    thread, begun = Watched(), Event()
    cache = HitsFrom(9, says=1, wait=lambda: begun.wait(LONGEST_S))
    rows = torch.tensor([[-5.0, -5.0, 5.0, 5.0]])
    with torch.inference_mode():
        expected = float(module[0](rows)[0, 0])
        module[0].bias += -10 - expected  # below zero, where the next segment would not leave it
    thread.use({0: cache})  # type: ignore[dict-item]
    thread.copied = frozenset({0})
    list(concurrent_exits(Steps(chain).with_caches({0}), thread.begin(), rows, logits=True))
    begun.set()
    thread.found(0)()
    assert cache.seen[0][0] == pytest.approx(-10, abs=1e-4)


@contextmanager
def cores_restored() -> Iterator[None]:
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_lookups_and_model_have_cores_of_their_own_also_when_a_second_model_follows() -> None:
    images = digits()[0][1300:1302]
    ran: list[set[int]] = []

    def note() -> None:
        ran.append(os.sched_getaffinity(0))

    cores = divided_cores(1)
    assert cores is not None
    with cores_restored():
        for _ in range(2):
            model = CachedModel(built().model.chain, {0: HitsFrom(1e9, 0, note)}, logits=True, lookups="beside")  # type: ignore[dict-item]
            model.setup()
            answer, seconds = model.through(images)
            assert os.sched_getaffinity(0) == cores.base
            assert torch.get_num_threads() == len(cores.base)
            assert (answer["exit_segment"] == 2).all()
            assert len(seconds) == 3
    assert ran == [cores.lookups] * 2
    assert len(cores.lookups) == 1
    assert not cores.lookups & cores.base


def test_where_no_core_is_spare_lookups_run_in_line(caplog: pytest.LogCaptureFixture) -> None:
    every = len(os.sched_getaffinity(0))
    chain, caches = built().model.chain, built().model.caches
    model = CachedModel(chain, caches, logits=True, lookups="beside", lookup_cores=every)
    with caplog.at_level(logging.WARNING):
        said = model.predict(digits()[0][1300:1340])
    assert model.lookups == "inline"
    assert "looked up in line, as the model would be left without a core" in caplog.text
    assert "chosen for lookups beside the model: build them with lookups in line" in caplog.text
    assert said["exit_segment"].tolist() == built().model.predict(digits()[0][1300:1340])["exit_segment"].tolist()


def test_a_hit_beside_the_model_is_charged_to_the_end_of_the_layer_in_which_it_is_found() -> None:
    hits = np.array([[True, False], [True, True], [True, True]])
    in_line = Problem(
        layer_s=np.array([1.0, 2.0, 3.0, 4.0]),
        layer=np.array([0, 1, 2]),
        hit_rate=hits.mean(axis=1),
        accuracy=np.ones(3),
        lookup_s=np.array([0.5, 3.0, 5.0]),
        memory_bytes=np.ones(3),
        hits=hits,
        right=np.ones_like(hits),
    )
    problem = at_ends(in_line)
    assert problem.lookup_s.tolist() == [2.0, 3.0, 5.0]
    assert leaves_after(problem).tolist() == [1, 2, 3]
    assert leaves_after(in_line).tolist() == [0, 1, 2]
    assert problem.may_follow().tolist() == [[False, True, True], [False, False, True], [False] * 3]
    assert problem.may_end().tolist() == [True, True, False]
    assert joint_outcome(problem, (0, 1)).latency_s == (3 + 6) / 2
