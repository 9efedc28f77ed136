"""The messages that a worker may send, and when."""

import math

import msgspec
import pytest

from gearshift.runtime.wire.conversation import Conversation
from gearshift.runtime.wire.messages import (
    Adopt,
    Adopted,
    Attended,
    Done,
    DonePart,
    Event,
    Hello,
    InUse,
    Load,
    Loaded,
    LoadFailed,
    OperatorToLoad,
    Ping,
    Pong,
    ReplicaToLoad,
    Run,
    RunPart,
    SetThreads,
    Stop,
    TensorHeader,
    ThreadsSet,
)
from gearshift.runtime.wire.transport import FrameError

CERTAINTY = TensorHeader(name="certainty", datatype="FP64", shape=(2,), size_bytes=16)
OUTPUT = TensorHeader(name="y", datatype="INT32", shape=(2, 3), size_bytes=24)
PART = DonePart(rows=(0, 2), tensors=(CERTAINTY, OUTPUT), exits=(0, 1))
DONE = Done(batch=5, run_s=0.1, parts=(PART,), failed=(1,), unanswered=(1,), first_failure="away")
BODY_BYTES = 40
LOADED = Loaded(replica=7, load_s=0.1, memory_bytes=1, segments=2)
THREADS = ThreadsSet(threads=2, since_ns=1)


def under_way(*, attends: bool = False) -> Conversation:
    """Replica 7 is loaded, replica 8 is being loaded, batch 5 of three rows runs."""
    conversation = Conversation(attends=attends)
    replicas = tuple(ReplicaToLoad(replica=replica, model="m") for replica in (7, 8))
    conversation.said(Load(operators=(OperatorToLoad(project="p"),), replicas=replicas))
    conversation.heard(LOADED, 0)
    conversation.said(Run(batch=5, replica=7, parts=(RunPart(rows=(0, 1), tensors=()), RunPart(rows=(2,), tensors=()))))
    return conversation


def test_what_was_asked_may_be_answered():
    conversation = under_way()
    conversation.heard(LoadFailed(replica=8, model="m", reason="no weights"), 0)
    for asked, answer in (
        (Ping(), Pong()),
        (SetThreads(threads=2), THREADS),
        (Adopt(replica=7, manifest=b""), Adopted(replica=7, version=1)),
    ):
        conversation.said(asked)
        conversation.heard(answer, 0)
    conversation.heard(DONE, BODY_BYTES)


def test_rows_may_leave_before_the_end():
    conversation = under_way()
    conversation.heard(msgspec.structs.replace(DONE, more=True, failed=(), unanswered=(), first_failure=""), BODY_BYTES)
    conversation.heard(Done(batch=5, run_s=0.1, parts=(), failed=(1,)), 0)


@pytest.mark.parametrize(
    "message",
    [
        Pong(),
        THREADS,
        Adopted(replica=7),
        LOADED,
        msgspec.structs.replace(LOADED, replica=9),
        msgspec.structs.replace(LOADED, replica=8, load_s=math.nan),
        msgspec.structs.replace(LOADED, replica=8, memory_bytes=-1),
        msgspec.structs.replace(LOADED, replica=8, segments=0),
        msgspec.structs.replace(LOADED, replica=8, warm_up_failure="x" * 8_000_000),
        LoadFailed(replica=7, model="m", reason=""),
        LoadFailed(replica=8, model="m", reason="a line\nand one that was made up"),
        Hello(worker=0, proof=b"", host="", pid=1, version=""),
        Event(event="shift", facts={}),
        InUse(version=1, manifest=b""),
        Attended(counts={}, outcomes={}, layers=()),
        Run(batch=1, replica=7, parts=()),
        Stop(),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_was_not_asked_is_not_to_be_said(message):
    with pytest.raises(FrameError):
        under_way().heard(message, 0)


def test_an_answer_is_given_once():
    conversation = under_way()
    conversation.said(Ping())
    conversation.heard(Pong(), 0)
    with pytest.raises(FrameError, match="a probe that was not sent"):
        conversation.heard(Pong(), 0)
    conversation.heard(DONE, BODY_BYTES)
    with pytest.raises(FrameError, match="a batch that it does not run"):
        conversation.heard(DONE, BODY_BYTES)


def with_part(**changes):
    return msgspec.structs.replace(DONE, parts=(msgspec.structs.replace(PART, **changes),))


def with_tensors(**changes):
    return with_part(tensors=(CERTAINTY, msgspec.structs.replace(OUTPUT, **changes)))


@pytest.mark.parametrize(
    "done",
    [
        msgspec.structs.replace(DONE, batch=1 << 60),
        msgspec.structs.replace(DONE, failed=()),
        msgspec.structs.replace(DONE, failed=(1, 1)),
        msgspec.structs.replace(DONE, failed=(0, 1)),
        msgspec.structs.replace(DONE, unanswered=(0,)),
        msgspec.structs.replace(DONE, run_s=math.nan),
        msgspec.structs.replace(DONE, run_s=-1e300),
        msgspec.structs.replace(DONE, segment_s=(0.1, 0.1)),
        msgspec.structs.replace(DONE, not_finite=-1),
        msgspec.structs.replace(DONE, first_failure="\x1b[31m"),
        msgspec.structs.replace(DONE, more=True),
        msgspec.structs.replace(DONE, more=True, parts=(), failed=(), unanswered=()),
        with_part(rows=(0, 5)),
        with_part(rows=(0, -1)),
        with_part(rows=(0, 1 << 40)),
        with_part(rows=(0,)),
        with_part(rows=(0, 0)),
        with_part(tensors=()),
        with_part(tensors=(OUTPUT,)),
        with_part(exits=(0,)),
        with_part(exits=(0, 2)),
        with_part(exits=(0, -1)),
        with_part(tensors=(CERTAINTY, OUTPUT, OUTPUT)),
        with_part(tensors=(msgspec.structs.replace(CERTAINTY, datatype="INT64"), OUTPUT)),
        with_part(tensors=(msgspec.structs.replace(CERTAINTY, shape=(-1,)), OUTPUT)),
        with_tensors(size_bytes=-8),
        with_tensors(size_bytes=1 << 62),
        with_tensors(shape=(3, 2)),
        with_tensors(shape=()),
    ],
)
def test_a_batch_is_told_row_by_row_or_not_at_all(done):
    with pytest.raises(FrameError):
        under_way().heard(done, BODY_BYTES)


def test_who_attends_to_caches_may_tell_of_them():
    for message in (Event(event="cache_off", facts={}), InUse(version=1, manifest=b""),
                    Attended(counts={}, outcomes={}, layers=())):  # fmt: skip
        under_way(attends=True).heard(message, 0)
