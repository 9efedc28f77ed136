import socket

import numpy as np

from gearshift.runtime.wire.messages import (
    Done,
    Load,
    Loaded,
    ReplicaToLoad,
    Run,
    RunPart,
    SetThreads,
    Stop,
    ThreadsSet,
)
from gearshift.runtime.wire.transport import BlockingConnection, pack_tensors
from gearshift.runtime.workers.worker import main_loop
from tests.little_task import INPUTS, write_little_task


def test_an_order_that_comes_behind_a_batch_holds_for_it(tmp_path):
    write_little_task(tmp_path)
    headers, buffers = pack_tensors({"x": np.array([[1.0, 2.0]])})
    load = Load(
        project=str(tmp_path / "gearshift.toml"),
        inputs=INPUTS,
        replicas=(ReplicaToLoad(replica=0, model="small", warm_up_rows=(1,)),),
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        router = BlockingConnection(ours)
        router.send(load)
        router.send(Run(batch=1, replica=0, parts=(RunPart(rows=(0,), tensors=headers),)), buffers)
        router.send(SetThreads(threads=1))
        router.send(Stop())
        assert main_loop(BlockingConnection(theirs)) == 0
        assert [type(router.receive()[0]) for _ in range(3)] == [Loaded, ThreadsSet, Done]
