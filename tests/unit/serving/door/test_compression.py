import asyncio
import gzip
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InvalidInput, QueueFull
from gearshift.serving.door.compression import STEP_BYTES, TooLargeInside, chosen_encoding, compress, decompress

LARGEST = 1 << 20
COMPRESSORS = {b"gzip": gzip.compress, b"deflate": zlib.compress}
BOMB = b"\0" * (64 << 20)


def opened(body: bytes, encoding: bytes, hold: Any = lambda _: None) -> bytes:
    return asyncio.run(decompress(body, encoding, LARGEST, hold))


@pytest.mark.parametrize("encoding", COMPRESSORS)
@settings(deadline=None, derandomize=True)
@given(content=st.binary(max_size=300) | st.binary(max_size=300).map(lambda piece: piece * 1000))
def test_what_is_compressed_comes_out_as_it_went_in(encoding, content):
    assert opened(COMPRESSORS[encoding](content), encoding) == content
    parts = asyncio.run(compress([content, content[:9]], encoding))
    assert opened(b"".join(parts), encoding) == content + content[:9]


@pytest.mark.parametrize("encoding", COMPRESSORS)
def test_what_does_not_compress_well_crosses_in_several_steps(encoding):
    content = bytes(range(256)) * 16 + zlib.compress(BOMB[: 16 << 20], 0)[: LARGEST - 8192]
    assert opened(COMPRESSORS[encoding](content), encoding) == content


@pytest.mark.parametrize("encoding", COMPRESSORS)
@pytest.mark.parametrize("size", [STEP_BYTES - 1, STEP_BYTES, STEP_BYTES + 1, 2 * STEP_BYTES, LARGEST])
def test_contents_that_end_near_the_end_of_a_step_come_out_whole(encoding, size):
    content = b"ab" * (size // 2) + b"c" * (size % 2)
    assert opened(COMPRESSORS[encoding](content), encoding) == content


@settings(deadline=None, derandomize=True)
@given(
    contents=st.lists(
        st.binary(max_size=300) | st.integers(0, 2 * STEP_BYTES).map(lambda size: b"a" * size), min_size=1
    )
)
def test_members_of_a_gzip_body_come_out_one_after_another(contents):
    contents = contents[:8]
    assert opened(b"".join(map(gzip.compress, contents)), b"gzip") == b"".join(contents)


@pytest.mark.parametrize("level", [0, 9])
def test_members_may_be_cut_anywhere_by_a_step(level):
    contents = [bytes([number % 251]) * (STEP_BYTES // 7) for number in range(60)]
    assert opened(b"".join(gzip.compress(content, level) for content in contents), b"gzip") == b"".join(contents)


def test_members_that_are_many_and_small_are_refused():
    assert opened(gzip.compress(b"") * 1000, b"gzip") == b""
    with pytest.raises(InvalidInput, match="the body has too many small members; compress it whole"):
        opened(gzip.compress(b"") * 2000, b"gzip")


@pytest.mark.parametrize("encoding", COMPRESSORS)
def test_a_bomb_is_refused_once_it_is_over_the_bound(encoding):
    held: list[int] = []
    with pytest.raises(TooLargeInside, match="1048576 bytes once it is decompressed"):
        opened(COMPRESSORS[encoding](BOMB), encoding, held.append)
    assert sum(held) <= LARGEST
    assert max(held) <= STEP_BYTES


def test_bytes_are_held_as_they_come_out_and_may_be_refused():
    def hold(_: int) -> None:
        raise QueueFull("full")

    with pytest.raises(QueueFull):
        opened(gzip.compress(b"abc"), b"gzip", hold)


@pytest.mark.parametrize("encoding", COMPRESSORS)
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda data: b"", "ends before"),
        (lambda data: data[:-1], "ends before"),
        (lambda data: data + b"x", "goes on after the end"),
        (lambda data: data + b"x" * STEP_BYTES, "goes on after the end"),
        (lambda data: b"{}" + data, "the body is not"),
        (lambda data: data[:-6] + b"\0" * 6, "the body is not"),
    ],
)
def test_a_spoilt_body_is_refused_with_the_reason(encoding, spoil, reason):
    with pytest.raises(InvalidInput, match=f"header content-encoding: .*{reason}"):
        opened(spoil(COMPRESSORS[encoding](b"some content")), encoding)


@pytest.mark.parametrize("encoding", [b"br", b"gzip, deflate", b"", b"\xff"])
def test_an_encoding_that_is_not_known_is_refused(encoding):
    with pytest.raises(InvalidInput, match="as gzip or deflate"):
        opened(b"abc", encoding)


def test_identity_is_no_encoding():
    assert opened(b"abc", b"identity") == b"abc"


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        (b"gzip, deflate, br", b"gzip"),
        (b"deflate", b"deflate"),
        (b"GZIP;q=0.5, deflate", b"gzip"),
        (b"gzip;q=0, deflate;q=0.1", b"deflate"),
        (b"*", b"gzip"),
        (b"gzip;q=0, *", b"deflate"),
        (b"*;q=0", None),
        (b"br", None),
        (b"identity", None),
        (b"", None),
        (b"gzip;q=nonsense", None),
    ],
)
def test_answers_are_compressed_as_the_client_accepts(accepted, chosen):
    assert chosen_encoding(accepted) == chosen
