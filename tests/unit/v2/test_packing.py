import numpy as np
import pytest

from gearshift.v2.packing import PackingError, pack_bytes, unpack_bytes


@pytest.mark.parametrize("data", [b"\x05\x00\x00\x00ab", b"\x01\x00", b"\x01\x00\x00\x00a\x01\x00\x00\x00b", b""])
def test_a_damaged_bytes_tensor_is_refused(data):
    with pytest.raises(PackingError):
        unpack_bytes(memoryview(data), (1,), text=True)


def test_kinds_of_elements_that_are_not_as_many_as_the_elements_are_refused():
    with pytest.raises(PackingError, match="1 elements says of 2"):
        unpack_bytes(memoryview(b"\x01\x00\x00\x00a"), (1,), text=b"\1\0")


def test_missing_texts_come_through_among_texts_and_bytes():
    array = np.array(["a", None, b"\xff"], dtype=object)
    data, text = pack_bytes(array)
    assert unpack_bytes(memoryview(data), (3,), text=text).tolist() == ["a", None, b"\xff"]


def test_texts_that_are_all_missing_come_through():
    data, text = pack_bytes(np.array([None, None], dtype=object))
    assert unpack_bytes(memoryview(data), (2,), text=text).tolist() == [None, None]
