"""Answers that a query has had already, by input."""

import hashlib
import threading
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from gearshift.bulk.answers import Answers
from gearshift.model import Arrays

MEMO_ROWS = 1 << 18
MOST_QUERIES = 4
LONGEST_KEY = 64
DIGEST_BYTES = 16

Keys = Sequence[Hashable]
Run = Callable[[NDArray[np.int64]], Answers]


def keys_of(inputs: Arrays) -> Keys:
    """A key for each row, equal for equal inputs; large inputs count by a digest."""
    of_inputs = [_keys(array) for array in inputs.values()]
    return of_inputs[0] if len(of_inputs) == 1 else list(zip(*of_inputs, strict=True))


def _keys(array: NDArray[np.generic]) -> list[Hashable]:
    if array.dtype == object:
        return [one if len(one) <= LONGEST_KEY else _digest(one) for one in array.reshape(-1).tolist()]
    rows = np.ascontiguousarray(array).reshape(len(array), -1)
    size = rows.dtype.itemsize * rows.shape[1]
    if len(rows) == 0 or size == 0:
        return [b""] * len(rows)
    keys: list[Hashable] = rows.view(f"V{size}").reshape(-1).tolist()
    return keys if size <= LONGEST_KEY else [_digest(key) for key in keys]  # type: ignore[arg-type]


def _digest(value: str | bytes) -> bytes:
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


class _Generation:
    """Answers to up to `rows` inputs, and the place of each."""

    def __init__(self, rows: int) -> None:
        self.answers, self.places = Answers.none_yet(rows), dict[Hashable, int]()

    def is_full_with(self, more: int) -> bool:
        return len(self.places) + more > len(self.answers.outcome)


class Memo:
    """The answers to the inputs of one query; of many, to the last `rows` at least."""

    def __init__(self, rows: int = MEMO_ROWS) -> None:
        self._rows = rows
        self._young, self._old = _Generation(rows), _Generation(0)
        self._lock = threading.Lock()

    def answers(self, keys: Keys, run: Run) -> Answers:
        """The answers to n rows; `run` is asked for those of inputs that are new, each once."""
        made = Answers.none_yet(len(keys))
        with self._lock:
            missing = self._fill(made, keys)
        if not missing:
            return made
        places: dict[Hashable, int] = {}
        first: list[int] = []
        for row in missing:
            if keys[row] not in places:
                places[keys[row]] = len(first)
                first.append(row)
        rows = np.array(first)
        fresh = run(rows)
        with self._lock:
            self._remember(list(places), fresh)
        if len(rows) == len(keys):
            return fresh
        made.put(np.array(missing), fresh.taken(np.array([places[keys[row]] for row in missing])))
        return made

    def _fill(self, made: Answers, keys: Keys) -> list[int]:
        """Put in what is known; the rows that are not."""
        missing = list(range(len(keys)))
        for generation in (self._young, self._old):
            if not generation.places or not missing:
                continue
            places = [generation.places.get(keys[row], -1) for row in missing]
            known = [(row, place) for row, place in zip(missing, places, strict=True) if place >= 0]
            if known:
                rows, found = np.array(known).T
                made.put(rows, generation.answers.taken(found))
                missing = [row for row, place in zip(missing, places, strict=True) if place < 0]
        return missing

    def _remember(self, keys: Keys, answers: Answers) -> None:
        if self._young.is_full_with(len(keys)):
            self._young, self._old = _Generation(max(self._rows, len(keys))), self._young
        young, begin = self._young, len(self._young.places)
        new = [row for row, key in enumerate(keys) if key not in young.places]  # another thread may have run it
        young.places.update({keys[row]: begin + place for place, row in enumerate(new)})
        young.answers.put(np.arange(begin, begin + len(new)), answers.taken(np.array(new, dtype=np.int64)))


class Memos:
    """The memos of the last queries, by the number of each."""

    def __init__(self, rows: int = MEMO_ROWS) -> None:
        self._rows = rows
        self._of: dict[int, Memo] = {}
        self._lock = threading.Lock()

    def of(self, query: int) -> Memo:
        with self._lock:
            memo = self._of.pop(query, None) or Memo(self._rows)
            self._of[query] = memo
            while len(self._of) > MOST_QUERIES:
                del self._of[next(iter(self._of))]
        return memo
