"""CUDA streams of a worker's replicas: on a device where there is one, else on what stands in for `torch.cuda`."""

import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gearshift.model import TensorSpec
from gearshift.models.torch_module import own_stream
from gearshift.runtime.wire.messages import Done, Load, Loaded, OperatorToLoad, ReplicaToLoad, Run, RunPart, Stop
from gearshift.runtime.wire.transport import BlockingConnection, pack_tensors, unpack_tensors
from gearshift.runtime.workers.worker import main_loop

TASK = """
import sys

import gearshift
import numpy as np

def samples():
    return gearshift.Samples(inputs={"x": np.zeros((4, 1), dtype=np.float32)}, labels=np.zeros(4, dtype=int))

def load():
    warm = []
    def stream_of_warm_up_and_of_this(x):
        warm.append(sys.modules["torch"].cuda.current_stream().cuda_stream)
        return {"streams": np.array([[warm[0], warm[-1]]]), "certainty": np.ones(1)}
    return stream_of_warm_up_and_of_this
"""


class Stream:
    """One of `cuda`, and what it waits for."""

    def __init__(self, cuda: "Cuda", number: int) -> None:
        self.cuda, self.cuda_stream, self.waits_for = cuda, number, list[Stream]()

    def wait_stream(self, other: "Stream") -> None:
        self.waits_for.append(other)

    def __enter__(self) -> None:
        self.before, self.cuda.current = self.cuda.current, self

    def __exit__(self, *error: object) -> None:
        self.cuda.current = self.before


class Cuda:
    """As much of `torch.cuda` as a worker takes."""

    def __init__(self) -> None:
        self.streams = list[Stream]()
        self.current = self.Stream()

    def Stream(self) -> Stream:
        self.streams.append(Stream(self, len(self.streams)))
        return self.streams[-1]

    def stream(self, stream: Stream) -> Stream:
        return stream

    def current_stream(self) -> Stream:
        return self.current

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return False


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    stand_in = Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=stand_in, nn=torch.nn))
    return stand_in


def streams_of_batches(folder: Path, *batches: int) -> list[list[int]]:
    """In which streams the replica of each batch warmed up and ran, in a worker of two; 0 is nobody's."""
    (folder / "task.py").write_text(TASK)
    models = "".join(f'[models.{name}]\nload = "task.py:load"\n' for name in "ab")
    (folder / "gearshift.toml").write_text(f'operator = "o"\nsamples = "task.py:samples"\n{models}')
    inputs = (TensorSpec(name="x", datatype="FP32", shape=(-1, 1)),)
    load = Load(
        operators=(OperatorToLoad(project=str(folder / "gearshift.toml"), inputs=inputs),),
        replicas=tuple(ReplicaToLoad(replica=i, model=name, warm_up_rows=(1,)) for i, name in enumerate("ab")),
        device_kind="cuda",
    )
    headers, buffers = pack_tensors({"x": np.zeros((1, 1), dtype=np.float32)})
    ours, theirs = socket.socketpair()
    with ours, theirs:
        router, found = BlockingConnection(ours), list[list[int]]()
        router.send(load)
        for batch, replica in enumerate(batches):
            router.send(Run(batch=batch, replica=replica, parts=(RunPart(rows=(0,), tensors=headers),)), buffers)
        router.send(Stop())
        assert main_loop(BlockingConnection(theirs)) == 0
        assert [type(router.receive()[0]) for _ in load.replicas] == [Loaded, Loaded]
        for _ in batches:
            done, body = router.receive()
            assert isinstance(done, Done)
            found.append(unpack_tensors(done.parts[0].tensors, body)["streams"][0].tolist())
    return found


def test_replicas_warm_up_and_run_in_streams_of_their_own_that_wait_for_their_weights(
    tmp_path: Path, cuda: Cuda
) -> None:
    nobodys = cuda.current
    assert streams_of_batches(tmp_path, 0, 1, 0) == [[1, 1], [2, 2], [1, 1]]
    assert [stream.waits_for for stream in cuda.streams[1:]] == [[nobodys], [nobodys]]
    assert cuda.current is nobodys


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_replicas_run_in_streams_of_their_own_on_a_device(tmp_path: Path) -> None:
    first, second, again = streams_of_batches(tmp_path, 0, 1, 0)
    assert first[0] == first[1] == again[1] != second[1] == second[0]
    assert torch.cuda.current_stream().cuda_stream not in (first[1], second[1])


@pytest.mark.parametrize("kind", ["cpu", "cpu-old", "remote"])
def test_other_devices_have_no_streams(kind: str, cuda: Cuda) -> None:
    assert isinstance(own_stream(kind), nullcontext)
    assert len(cuda.streams) == 1


def test_torch_that_is_not_loaded_stays_so() -> None:
    program = "from gearshift.models.torch_module import own_stream\nwith own_stream('cuda'): pass\n"
    subprocess.run([sys.executable, "-c", f"{program}import sys\nassert 'torch' not in sys.modules"], check=True)
