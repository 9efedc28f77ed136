import subprocess
import sys

import pytest

from gearshift.model import Predicted, TensorSpec, zeros
from gearshift.runtime.wire.messages import (
    ReplicaToLoad,
)
from gearshift.runtime.workers.loading import held_bytes, warm_up


def test_memory_of_children_counts_such_as_of_lookups_beside_a_model():
    before = held_bytes("cpu")
    child = "import sys; held = b'x' * (64 << 20); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert held_bytes("cpu") > before + (32 << 20)
        process.stdin.close()


@pytest.mark.parametrize(("fails_on", "failure"), [((1, 8), "raised ValueError: zeros"), ((8,), ""), ((), "")])
def test_a_warm_up_fails_when_every_batch_does(fails_on, failure):
    class Picky:
        def run(self, inputs) -> Predicted:
            if len(inputs["x"]) in fails_on:
                raise ValueError("zeros")
            return Predicted({}, inputs["x"])

    replica = ReplicaToLoad(replica=0, model="m", warm_up_rows=(1, 8))
    warmed = warm_up(replica, Picky(), (TensorSpec(name="x", datatype="FP32", shape=(-1,)),), longest_s=60.0)
    assert warmed == (failure, 0)


@pytest.mark.parametrize(("longest_s", "run", "cold"), [(60.0, [1, 5, 2, 3, 4], 0), (-1.0, [1, 5], 3)])
def test_a_warm_up_runs_every_size_for_which_there_is_time(longest_s, run, cold):
    sizes = []

    class Counts:
        def run(self, inputs) -> Predicted:
            sizes.append(len(inputs["x"]))
            return Predicted({}, inputs["x"])

    replica = ReplicaToLoad(replica=0, model="m", warm_up_rows=(1, 5, 2, 3, 4))
    warmed = warm_up(replica, Counts(), (TensorSpec(name="x", datatype="FP64", shape=(-1,)),), longest_s=longest_s)
    assert (sizes, warmed) == (run, ("", cold))


def test_warm_up_batches_have_the_shape_and_type_of_the_input():
    assert zeros(TensorSpec(name="x", datatype="FP32", shape=(-1, 3, -1)), 2).shape == (2, 3, 1)
    assert zeros(TensorSpec(name="x", datatype="BYTES", shape=(-1,)), 2).tolist() == ["", ""]
