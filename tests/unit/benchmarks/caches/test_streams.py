import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.caches.streams import (
    LONGEST_RETRAINING_S,
    UNSEEN,
    Case,
    Run,
    at_lowest_priority,
    blocks_of,
    by_block,
    judge,
    seen_of,
)
from benchmarks.shared.bars import Bars
from gearshift.caches.adapting.settings import Adaptation
from tests.unit.caches.adapters import adapter_in, images_of, saved_in, stream
from tests.unit.caches.digit_networks import built, digits, network


def run_of(agree: list[bool], retraining_s: float) -> Run:
    zeros: Any = np.zeros(len(agree))
    return Run(
        adapted_s=zeros, static_s=zeros, base_s=zeros, agree=np.array(agree), static_agree=zeros, exits=zeros,
        static_exits=zeros, adapter=None, told=[], retraining_s=retraining_s,
    )  # fmt: skip


def test_a_window_that_falls_short_is_no_longer_hidden_in_the_mean() -> None:
    bars = Bars()
    judge(bars, "stream", run_of([True] * 990 + [False] * 10, LONGEST_RETRAINING_S), 100)
    assert [held for held, _ in bars.judged] == [False, True]
    assert bars.judged[0][1] == "stream, agreement in the worst of 10 windows: 0.9, bar at least 0.97"


@pytest.mark.long
def test_retraining_is_timed_at_the_lowest_priority_and_the_others_keep_theirs(tmp_path: Path) -> None:
    priority, cores = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)
    adapter, _ = adapter_in(saved_in(tmp_path))
    assert np.isnan(at_lowest_priority(adapter, 0.0))
    stream(adapter, images_of(1, 2, count=100))
    assert at_lowest_priority(adapter, 100.0) > 0
    assert (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)) == (priority, cores)


@pytest.mark.long
def test_classes_that_come_late_do_so_with_a_window_and_build_nothing(tmp_path: Path) -> None:
    images, labels = digits()
    case = Case(
        network=network(), folder=tmp_path, without=lambda: tmp_path, images=images, labels=labels, samples=6000,
        class_window=900, adaptation=Adaptation(),
    )  # fmt: skip
    assert case.shift_at == 1800
    kept, classes = seen_of(images, labels)
    assert len(kept) == len(classes) == np.count_nonzero(~np.isin(labels, UNSEEN))
    assert not set(UNSEEN) & set(classes.tolist())


@pytest.mark.long
def test_each_block_is_told_by_its_own_lookups_of_all_images() -> None:
    images, _ = digits()
    model = built().model
    found = by_block(model, images[:100])
    exits = model.predict(images[:100])["exit_segment"]
    first = model.chain.names[min(model.caches)]
    assert found[first][1] == pytest.approx((exits == min(model.caches)).mean())
    assert all(0 <= share <= 1 for pair in found.values() for share in pair)
    made = run_of([True], 1.0)
    assert blocks_of(made) == "no cache is looked up"
    made.blocks = {"deep": (0.875, 0.5)}
    assert blocks_of(made).splitlines()[-1] == "| deep | not looked up |  | 87.5% | 50.0% |"
