import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bars import Bars
from caches_streams import LONGEST_RETRAINING_S, Run, at_lowest_priority, judge

from tests.unit.caches.adapting import adapter_in, images_of, saved_in, stream


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
