import numpy as np
import pytest

from gearshift.request import Request, Sample
from gearshift.runtime.wire.batch_messages import settle
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
