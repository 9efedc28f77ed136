import logging

import pytest

from gearshift.clock import NS_PER_S
from gearshift.observability.journal import Journal
from gearshift.runtime.faults.failure_log import FailureLog


def test_a_replica_has_one_line_in_ten_seconds_with_counts(caplog: pytest.LogCaptureFixture) -> None:
    counted = list[tuple[str, str, str]]()
    failures = FailureLog(["a0", "a1"], ["a", "a"], lambda *told: counted.append(told), Journal())
    with caplog.at_level(logging.WARNING):
        for second in range(21):
            failures.failed(0, "no_answer" if second else "lost")
            failures.ticked(second * NS_PER_S)
    assert counted[:2] == [("a", "a0", "lost"), ("a", "a0", "no_answer")]
    assert [record.getMessage() for record in caplog.records] == [
        "replica a0 of model 'a': 1 batches failed (1 lost)",
        "replica a0 of model 'a': 10 batches failed (10 no_answer)",
        "replica a0 of model 'a': 10 batches failed (10 no_answer)",
    ]
