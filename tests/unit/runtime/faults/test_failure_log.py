import logging

import pytest

from gearshift.clock import NS_PER_S
from gearshift.runtime.faults.failure_log import FailureLog


def test_a_replica_has_one_line_in_ten_seconds_with_counts(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog(["a0", "a1"], ["a", "a"])
    with caplog.at_level(logging.WARNING):
        for second in range(21):
            failures.failed(0, "no_answer" if second else "lost")
            failures.ticked(second * NS_PER_S)
    assert [record.getMessage() for record in caplog.records] == [
        "replica a0 of model 'a': 1 batches failed (1 lost)",
        "replica a0 of model 'a': 10 batches failed (10 no_answer)",
        "replica a0 of model 'a': 10 batches failed (10 no_answer)",
    ]
