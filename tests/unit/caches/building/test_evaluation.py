import logging
import os
from typing import Any

import psutil
import pytest
from torch import Tensor

from gearshift.caches.building import evaluation
from gearshift.caches.building.evaluation import measure_in_line, timed
from gearshift.caches.building.exploration import explore_module
from gearshift.caches.running.row_lookup import Whole
from tests.unit.caches.digit_networks import BLOCKS, QUICK, VARIANTS, few, network


@pytest.mark.long
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_where_the_process_of_lookups_ends_while_it_is_timed_all_is_timed_in_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    images, labels = few()
    made = explore_module(network(), images, labels, variants=("FC(16)",), training=QUICK, blocks=BLOCKS[:1])

    def kill(*_: object) -> None:
        killing.remove()
        for child in psutil.Process().children():
            if child.status() != psutil.STATUS_ZOMBIE and "gearshift.caches.running.lookup_server" in child.cmdline():
                child.kill()

    killing = made.chain.module.get_submodule(BLOCKS[0]).register_forward_pre_hook(kill)
    with caplog.at_level(logging.WARNING):
        how, segment_s, lookup_s = timed(made.chain, made.explored, images[:4], "beside")
    assert how == "inline"
    assert "to be looked up in line, as their process has ended" in caplog.text
    assert min(*segment_s, *lookup_s) > 0


def test_lookups_in_line_are_timed_each_behind_its_layer_of_one_row_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images, labels = few()
    made = explore_module(network(), images, labels, blocks=BLOCKS, variants=VARIANTS, training=QUICK)
    looked: list[Any] = []

    class Noting(Whole):
        def row(self, hidden: Tensor) -> None:
            looked.append((self._cache, hidden.shape[1:]))

    monkeypatch.setattr(evaluation, "lookup_of", Noting)
    _, found = measure_in_line(made.chain, made.explored, images)
    assert len(found) == len(made.explored)
    assert all(0 < seconds < 1 for seconds in found)
    by_cache = {id(one.trained.cache): one for one in made.explored}
    order = [by_cache[id(cache)] for cache, _ in looked]
    assert all(one.shape == tuple(shape) for one, (_, shape) in zip(order, looked, strict=True))
    a_round = order[: len(made.explored)]
    assert [one.layer for one in a_round] == [*range(len(BLOCKS))] * len(VARIANTS)
    assert len(order) == len(a_round) * (evaluation.WARM_UP + evaluation.REPEATS)


@pytest.mark.long
def test_a_spell_in_which_the_machine_is_slow_changes_neither_segments_nor_lookups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images, labels = few()
    made = explore_module(network(), images, labels, blocks=BLOCKS, variants=VARIANTS, training=QUICK)

    def measured(slow: range) -> tuple[int, list[float], list[float]]:
        asked, now = 0, 0.0

        def clock() -> float:
            nonlocal asked, now
            now += 10.0 if asked in slow else 1.0
            asked += 1
            return now

        monkeypatch.setattr(evaluation, "perf_counter", clock)
        segment_s, lookup_s = measure_in_line(made.chain, made.explored, images)
        return asked, segment_s.tolist(), lookup_s

    asked, *even = measured(range(0))
    for began in (0, asked // 3, asked - asked // 3):
        assert measured(range(began, began + asked // 3))[1:] == (*even,)
