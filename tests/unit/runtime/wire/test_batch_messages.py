import numpy as np
import pytest

from gearshift.request import Request, Sample
from gearshift.runtime.wire.batch_messages import assemble, settle
from gearshift.runtime.wire.messages import (
    Done,
    DonePart,
)
from gearshift.runtime.wire.transport import FrameError, pack_tensors


def test_a_certainty_that_is_not_a_number_is_no_workers_to_tell_and_leaves_samples_as_they_are():
    request = Request(id=1, operator="o", arrived_ns=0, rows=1)
    sample = Sample(request, 0, 0, {})
    headers, buffers = pack_tensors({"certainty": np.array([np.nan])})
    with pytest.raises(FrameError, match="not a number"):
        settle([sample], Done(batch=1, run_s=0.0, parts=(DonePart(rows=(0,), tensors=headers),)), buffers[0], "m")
    assert sample.result is None


@pytest.mark.parametrize("over", [False, True])
def test_an_answer_that_comes_after_the_row_was_answered_by_time_changes_nothing(over: bool) -> None:
    request = Request(id=1, operator="o", arrived_ns=0, rows=1)
    sample = Sample(request, 0, 0, {}, result="kept", over=over)
    headers, buffers = pack_tensors({"certainty": np.array([0.7])})
    settle([sample], Done(batch=1, run_s=0.0, parts=(DonePart(rows=(0,), tensors=headers),)), buffers[0], "m")
    assert (sample.result, sample.certainty) == (("kept", 0.0) if over else ({}, 0.7))


@pytest.mark.parametrize("lacks", [0, 1])
def test_rows_that_lack_an_input_are_a_part_of_their_own(lacks: int) -> None:
    x = np.ones((1, 2))
    payloads = [{"x": x, "y": x}, {"x": x, "y": x}, {"x": x, "y": x}]
    del payloads[lacks]["y"]
    request = Request(id=1, operator="o", arrived_ns=0, rows=3)
    parts, _ = assemble([Sample(request, row, row, payload) for row, payload in enumerate(payloads)])
    told = {part.rows: [tensor.name for tensor in part.tensors] for part in parts}
    others = tuple(row for row in range(3) if row != lacks)
    assert told == {(lacks,): ["x"], others: ["x", "y"]}


def test_rows_with_inputs_of_other_names_are_not_mixed() -> None:
    x, request = np.ones((1, 2)), Request(id=1, operator="o", arrived_ns=0, rows=2)
    parts, _ = assemble([Sample(request, 0, 0, {"x": x}), Sample(request, 1, 1, {"y": x})])
    assert [part.rows for part in parts] == [(0,), (1,)]
