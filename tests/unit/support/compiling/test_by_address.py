from typing import Any, NamedTuple

import numba
import numpy as np

from gearshift.support.compiled import apart, compiled, inlined
from gearshift.support.compiling.by_address import by_address

RECORD = np.dtype([("count", np.int64), ("share", np.float64)], align=True)


class Inner(NamedTuple):
    few: Any
    number: int


class Outer(NamedTuple):
    line: Any
    table: Any
    block: Any
    small: Any
    record: Any
    absent: Any
    factor: float
    wanted: bool
    inner: Inner
    numbers: Any


def outer(*, wanted: bool = True, absent: Any = None) -> Outer:
    return Outer(
        line=np.arange(5.0),
        table=np.arange(6).reshape(2, 3),
        block=np.arange(24, dtype=np.int32).reshape(2, 3, 4),
        small=np.array([True, False]),
        record=np.zeros(1, RECORD).view(np.recarray)[0],
        absent=absent,
        factor=0.5,
        wanted=wanted,
        inner=Inner(few=np.array([7], dtype=np.int8), number=-3),
        numbers=np.zeros(2, RECORD).view(np.recarray),
    )


@inlined
def _of_inner(inner: Inner) -> Any:
    return inner.few[0] + inner.number


@apart
def _note(given: Outer, value: Any) -> None:
    given.record.count += 1
    given.record.share = value
    given.numbers[1].count = given.table.shape[1]
    given.line[:] = value


@compiled
def _read(given: Outer) -> Any:
    total = given.line[4] * given.factor + given.table[1, 2] + given.block[1, 2, 3] + _of_inner(given.inner)
    for row in given.table:
        total += row[1]
    if given.small[0] and given.wanted and given.absent is None:
        _note(given, total)
    return total


def test_compiled_code_reads_every_kind_of_field_and_changes_what_they_refer_to() -> None:
    given = outer()
    expected = 4.0 * 0.5 + 5 + 23 + 7 - 3 + 1 + 4
    assert _read(by_address(given)) == expected
    assert (given.record.count, given.record.share, given.numbers[1].count) == (1, expected, 3)
    assert given.line.tolist() == [expected] * 5


def test_one_function_is_compiled_for_all_values_and_another_where_a_field_is_there() -> None:
    for wanted in (True, False):
        given = outer(wanted=wanted)
        _read(by_address(given))
        assert given.record.count == wanted
    before, read = len(_signatures()), _read(by_address(outer(absent=1)))
    assert (len(_signatures()), read) == (before + 1, 39.0)


def _signatures() -> list[Any]:
    read: Any = _read
    return list(read.made.signatures)


def test_its_function_may_be_called_by_one_that_numba_compiles_as_usual() -> None:
    @numba.njit
    def call(given: Outer) -> Any:
        return _of_inner(given.inner)

    assert call(by_address(outer())) == 4
