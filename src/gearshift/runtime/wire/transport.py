"""Frames over a stream socket, Unix or TCP: a small header, then raw tensor bytes.

    | header length, 4 bytes | body length, 8 bytes | header: msgpack | body: tensors, one after another |

Numbers are little-endian. Over TCP a tag follows, once both sides are authenticated (`Seal`).
Tensors cross as their bytes, never pickled; an element of a BYTES tensor is its length in 4 bytes
and then its bytes, as in the Open Inference Protocol's binary form.
"""

import asyncio
import contextlib
import hmac
import math
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import printable
from gearshift.model import DATATYPES, Arrays
from gearshift.runtime.wire.messages import Message, TensorHeader
from gearshift.v2.packing import Buffer, bytes_of, datatype_named, pack_bytes, unpack_bytes

TAG_BYTES = 32


class Seal:
    """Tags for one direction of a connection: HMAC-SHA256 of each frame and its number."""

    def __init__(self, key: bytes) -> None:
        self._key, self._frames = key, 0

    def tag(self, pieces: Iterable[Buffer]) -> bytes:
        code = hmac.new(self._key, self._frames.to_bytes(8, "little"), "sha256")
        for piece in pieces:
            code.update(piece)
        self._frames += 1
        return code.digest()

    def fits(self, pieces: Iterable[Buffer], tag: Buffer) -> bool:
        """Whether `tag` is the next frame's; counts the frame."""
        return hmac.compare_digest(self.tag(pieces), tag)


LARGEST_HEADER_BYTES = 16 << 20
LARGEST_BODY_BYTES = 4 << 30
SCRATCH_BYTES = 64 << 10
SOCKET_BUFFER_BYTES = 4 << 20
MOST_BUFFERS_PER_CALL = 512
LONGEST_TEXT = 1000
AWAKE_PART, LEAST_AWAKE_S = 1 / 8, 1e-4

_PREFIX = struct.Struct("<IQ")
_ENCODER = msgspec.msgpack.Encoder()
WORKERS: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)

Decoder = msgspec.msgpack.Decoder[Any]
M = TypeVar("M", bound=msgspec.Struct)
N = TypeVar("N", bound=msgspec.Struct)
Frame = tuple[Any, memoryview]
OnFrame = Callable[[Any, memoryview], None]


class FrameError(ValueError):
    """A frame is over a bound, does not match its header, or is not allowed now."""


class EndOfStream(EOFError):
    """The other side closed the socket."""


# Tensors -------------------------------------------------------------------------------------------------------------


def pack_tensors(arrays: Arrays) -> tuple[tuple[TensorHeader, ...], list[Buffer]]:
    """Headers and buffers of `arrays`; contiguous numbers are not copied."""
    headers: list[TensorHeader] = []
    buffers: list[Buffer] = []
    for name, array in arrays.items():
        datatype = datatype_named(array.dtype)
        text: bool | bytes = False
        if datatype == "BYTES":
            buffer: Buffer
            buffer, text = pack_bytes(array)
        else:
            buffer = bytes_of(array)
        size_bytes = len(buffer)
        headers.append(TensorHeader(name=name, datatype=datatype, shape=array.shape, size_bytes=size_bytes, text=text))
        buffers.append(buffer)
    return tuple(headers), buffers


def unpack_tensors(headers: Iterable[TensorHeader], body: memoryview, offset: int = 0) -> dict[str, NDArray[Any]]:
    """Numbers share the body's memory; raises `FrameError` if a header does not match it."""
    arrays = {}
    for header in headers:
        end = offset + header.size_bytes
        if not offset <= end <= len(body):
            raise FrameError(f"tensor {shortened(header.name)!r} ends at byte {end} of a body of {len(body)}")
        arrays[header.name] = _unpack(header, body[offset:end])
        offset = end
    return arrays


def _unpack(header: TensorHeader, data: memoryview) -> NDArray[Any]:
    try:
        if min((0, *header.shape)) < 0:
            raise FrameError("a dimension is negative")
        if header.datatype == "BYTES":
            return unpack_bytes(data, header.shape, text=header.text)
        return np.frombuffer(data, dtype=DATATYPES[header.datatype]).reshape(header.shape)
    except (KeyError, ValueError) as error:
        raise FrameError(f"tensor {shortened(header.name)!r}: {error}") from error


# Frames --------------------------------------------------------------------------------------------------------------


def encode_frame(message: msgspec.Struct, buffers: Sequence[Buffer] = (), seal: Seal | None = None) -> list[Buffer]:
    """The frame as buffers to write in order; raises `FrameError` if it is over a bound."""
    header = _ENCODER.encode(message)
    body_bytes = sum(len(buffer) for buffer in buffers)
    _check_bounds(len(header), body_bytes, WIDE)
    frame: list[Buffer] = [_PREFIX.pack(len(header), body_bytes) + header, *buffers]
    return frame if seal is None else [*frame, seal.tag(frame)]


class Bounds(NamedTuple):
    """The largest header and body of a frame, in bytes; an `alone` frame has none after it."""

    header: int = LARGEST_HEADER_BYTES
    body: int = LARGEST_BODY_BYTES
    alone: bool = False


WIDE = Bounds()


def _check_bounds(header_bytes: int, body_bytes: int, bounds: Bounds) -> None:
    if header_bytes > bounds.header or body_bytes > bounds.body:
        raise FrameError(
            f"a frame of {header_bytes} + {body_bytes} bytes is over the bound of {bounds.header} + {bounds.body}"
        )


class FrameReader:
    """Cuts a stream into frames without copying large ones.

    Bytes are read into `buffer()`, then `received` gets their number. Small frames arrive several
    at a time in one scratch buffer; a frame that does not fit there gets its own buffer, which its
    tensors keep. `bounds` and `seal` may be changed between frames, if the last one came alone;
    `decoder` defines the messages.
    """

    def __init__(self, bounds: Bounds = WIDE, decoder: Decoder = WORKERS) -> None:
        self.bounds, self._decoder = bounds, decoder
        self.seal: Seal | None = None
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._filled = 0
        self._large: memoryview | None = None
        self._large_header_bytes = 0

    def buffer(self) -> memoryview:
        """The buffer for the next bytes; never empty."""
        return (self._scratch if self._large is None else self._large)[self._filled :]

    def received(self, count: int) -> list[Frame]:
        """The frames that the next `count` bytes complete; raises `FrameError` for a bad one."""
        self._filled += count
        if self._large is not None:
            return self._finish_large(self._large)
        return self._cut_scratch()

    def _finish_large(self, large: memoryview) -> list[Frame]:
        if self._filled < len(large):
            return []
        self._large, self._filled = None, 0
        return [self._decode(large, self._large_header_bytes)]

    def _cut_scratch(self) -> list[Frame]:
        frames: list[Frame] = []
        begin = 0
        while self._filled - begin >= _PREFIX.size:
            header_bytes, body_bytes = _PREFIX.unpack_from(self._scratch, begin)
            _check_bounds(header_bytes, body_bytes, self.bounds)
            content = begin + _PREFIX.size
            content_bytes = header_bytes + body_bytes + (0 if self.seal is None else TAG_BYTES)
            end = content + content_bytes
            if end > self._filled:
                if end - begin > SCRATCH_BYTES:
                    self._begin_large(self._scratch[content : self._filled], header_bytes, content_bytes)
                    return frames
                break
            if self.bounds.alone and end < self._filled:
                raise FrameError("there is more behind a greeting")
            frames.append(self._decode(memoryview(bytearray(self._scratch[content:end])), header_bytes))
            begin = end
        rest = bytes(self._scratch[begin : self._filled])
        self._scratch[: len(rest)] = rest
        self._filled = len(rest)
        return frames

    def _begin_large(self, arrived: memoryview, header_bytes: int, content_bytes: int) -> None:
        self._large = np.empty(content_bytes, np.uint8).data  # a bytearray would be cleared first
        self._large[: len(arrived)] = arrived
        self._large_header_bytes = header_bytes
        self._filled = len(arrived)

    def _decode(self, content: memoryview, header_bytes: int) -> Frame:
        if self.seal is not None:
            content, tag = content[:-TAG_BYTES], content[-TAG_BYTES:]
            if not self.seal.fits((_PREFIX.pack(header_bytes, len(content) - header_bytes), content), tag):
                raise FrameError("a frame is not of this session, or was changed on its way")
        try:
            return self._decoder.decode(content[:header_bytes]), content[header_bytes:]
        except Exception as error:  # noqa: BLE001  also RecursionError and UnicodeDecodeError
            raise FrameError(f"a frame's header cannot be read: {shortened(str(error))}") from None


def shortened(text: str) -> str:
    """Text of another process on one line without control characters, cut to `LONGEST_TEXT`."""
    clean = " ".join("".join(letter if letter.isprintable() else " " for letter in printable(text)).split())
    return clean if len(clean) <= LONGEST_TEXT else clean[:LONGEST_TEXT] + "..."


# Sockets -------------------------------------------------------------------------------------------------------------


def widen(sock: socket.socket) -> None:
    """Enlarge the buffers as far as the system allows, so that a batch leaves in few writes."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)


# The worker's side: blocking -----------------------------------------------------------------------------------------


class BlockingConnection:
    """A socket on which frames are sent and received one after another.

    After some work, `receive` polls before it sleeps: for an eighth (`AWAKE_PART`) of the time
    that the work took and at most `awake_s`, if the wait before was no longer than that. A
    processor that has slept wakes late and is slow at first. Polling yields the processor to
    anybody else who wants it. Polling for less than `LEAST_AWAKE_S` costs others more than it
    gains.
    """

    def __init__(self, sock: socket.socket, bounds: Bounds = WIDE) -> None:
        self._socket = sock
        self._reader = FrameReader(bounds)
        self._seal: Seal | None = None
        self._frames: list[Frame] = []
        self._began_s, self._waited_s = time.perf_counter(), math.inf
        self.awake_s = 0.0

    def widen_bounds(self) -> None:
        self._reader.bounds = WIDE

    def seal(self, ours: Seal, theirs: Seal) -> None:
        self._seal, self._reader.seal = ours, theirs

    def send(self, message: msgspec.Struct, buffers: Sequence[Buffer] = ()) -> None:
        pending: list[Buffer] = [buffer for buffer in encode_frame(message, buffers, self._seal) if len(buffer)]
        while pending:
            sent = self._socket.sendmsg(pending[:MOST_BUFFERS_PER_CALL])
            while pending and sent >= len(pending[0]):
                sent -= len(pending.pop(0))
            if sent:
                pending[0] = memoryview(pending[0])[sent:]

    def waits(self, within_s: float) -> bool:
        return bool(self._frames) or bool(select.select([self._socket], [], [], within_s)[0])

    def receive(self) -> Frame:
        """The next frame; raises `EndOfStream` when the other side is gone."""
        ended_s = time.perf_counter()
        awake_s = min(self.awake_s, AWAKE_PART * (ended_s - self._began_s))
        if max(self._waited_s, LEAST_AWAKE_S) <= awake_s:
            self._look_until(ended_s + awake_s)
        while not self._frames:
            self._take_bytes()
        self._began_s = time.perf_counter()
        self._waited_s = self._began_s - ended_s
        return self._frames.pop(0)

    def take_arrived(self, kinds: tuple[type[M], type[N]]) -> list[M | N]:
        """Remove and return arrived messages of these kinds; others stay for `receive`."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._take_bytes(socket.MSG_DONTWAIT)
        found = [message for message, _ in self._frames if isinstance(message, kinds)]
        self._frames = [frame for frame in self._frames if not isinstance(frame[0], kinds)]
        return found

    def _look_until(self, end_s: float) -> None:
        while not self._frames and time.perf_counter() < end_s:
            try:
                self._take_bytes(socket.MSG_DONTWAIT)
            except BlockingIOError:
                os.sched_yield()

    def _take_bytes(self, flags: int = 0) -> None:
        count = self._socket.recv_into(self._reader.buffer(), 0, flags)
        if count == 0:
            raise EndOfStream
        self._frames += self._reader.received(count)


# The router's side: asyncio ------------------------------------------------------------------------------------------


class FrameProtocol(asyncio.BufferedProtocol):
    """Hands complete frames to `on_frame`; calls `on_end` once when the other side is gone.

    A bad frame, or a `FrameError` of `on_frame`, ends the connection; `fault` says why.
    """

    def __init__(
        self, on_frame: OnFrame, on_end: Callable[[], None], bounds: Bounds = WIDE, decoder: Decoder = WORKERS
    ) -> None:
        self._on_frame = on_frame
        self._on_end = on_end
        self._reader = FrameReader(bounds, decoder)
        self._seal: Seal | None = None
        self._transport: asyncio.Transport | None = None
        self.fault = ""

    def seal(self, ours: Seal, theirs: Seal) -> None:
        self._seal, self._reader.seal = ours, theirs

    def hand_over(self, on_frame: OnFrame, on_end: Callable[[], None]) -> None:
        """Hand later frames to another receiver, and accept frames up to the largest size."""
        self._on_frame, self._on_end, self._reader.bounds = on_frame, on_end, WIDE

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has another base

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for message, body in self._reader.received(nbytes):
                self._on_frame(message, body)
        except FrameError as error:
            self.fault = str(error)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()

    def send(self, message: msgspec.Struct, buffers: Sequence[Buffer] = ()) -> None:
        """Send a frame unless the other side is gone; raises `FrameError` over a bound."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(encode_frame(message, buffers, self._seal))

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
