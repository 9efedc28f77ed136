"""Answers that a query has had already, by input."""

import hashlib
import threading
from collections.abc import Callable, Hashable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.bulk.answers import Answers
from gearshift.model import Arrays

MEMO_ROWS = 1 << 17
KEY_BYTES = 64 << 20
"""Keys that are remembered take up to twice this, however long they are."""
LONGEST_KEY = 1024
DIGEST_BYTES = 16
MOST_QUERIES = 4

Keys = Sequence[Hashable]
Run = Callable[[NDArray[np.int64]], Answers]


def keys_of(inputs: Arrays) -> Keys:
    """A key for each row, equal for equal inputs; large inputs count by a digest."""
    of_inputs = [_keys(array) for array in inputs.values()]
    return of_inputs[0] if len(of_inputs) == 1 else list(zip(*of_inputs, strict=True))


def _keys(array: NDArray[np.generic]) -> list[Hashable]:
    if array.dtype == object:
        texts: list[Any] = array.reshape(-1).tolist()
        return [_digest(text) for text in texts] if max(map(_size, texts), default=0) > LONGEST_KEY else texts
    rows = np.ascontiguousarray(array).reshape(len(array), -1)
    size = rows.dtype.itemsize * rows.shape[1]
    if len(rows) == 0 or size == 0:
        return [b""] * len(rows)
    keys: list[Hashable] = rows.view(f"V{size}").reshape(-1).tolist()
    return keys if size <= LONGEST_KEY else [_digest(key) for key in keys]  # type: ignore[arg-type]


def _digest(value: str | bytes | None) -> Hashable:
    if value is None or len(value) <= LONGEST_KEY:
        return value
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def _size(key: Hashable) -> int:
    """Bytes or letters of a key; a missing text has none."""
    if key is None:
        return 0
    return sum(map(_size, key)) if isinstance(key, tuple) else len(key)  # type: ignore[arg-type]


class _Generation:
    """Answers to up to `rows` inputs, and the place of each."""

    def __init__(self, rows: int) -> None:
        self.answers, self.places = Answers.none_yet(rows), dict[Hashable, int]()

    def is_full_with(self, more: int) -> bool:
        return len(self.places) + more > len(self.answers.outcome)


class Memo:
    """The answers to the inputs of one query; of many, to the last `rows` at least, or `KEY_BYTES`."""

    def __init__(self, rows: int = MEMO_ROWS) -> None:
        self._rows = rows
        self._young, self._old = _Generation(0), _Generation(0)
        self._lock = threading.Lock()

    def answers(self, keys: Keys, run: Run) -> Answers:
        """The answers to n rows; `run` is asked for those of inputs that are new, each once."""
        with self._lock:
            if (all_known := self._all_known(keys)) is not None:
                return all_known
            missing = self._missing(keys)
            made = self._fill(keys, missing) if len(missing) < len(keys) else None
        asked = keys if made is None else [keys[row] for row in missing]
        if len(set(asked)) == len(asked):
            rows, of_asked = np.array(missing, dtype=np.int64), np.arange(len(asked))
        else:  # each of equal ones is asked for once, the first
            places: dict[Hashable, int] = {}
            of_asked = np.array([places.setdefault(key, len(places)) for key in asked])
            rows = np.array(missing)[np.unique(of_asked, return_index=True)[1]]
        fresh = run(rows) if len(rows) else Answers.none_yet(0)
        with self._lock:
            self._remember(keys if len(rows) == len(keys) else [keys[row] for row in rows.tolist()], fresh)
        if len(rows) == len(keys):
            return fresh
        made = made or Answers.none_yet(len(keys))
        made.put(np.array(missing, dtype=np.int64), fresh.taken(of_asked))
        return made

    def _all_known(self, keys: Keys) -> Answers | None:
        try:
            places = itemgetter(*keys)(self._young.places)
        except KeyError:
            return None
        return self._young.answers.taken(np.array(places).reshape(-1))

    def _missing(self, keys: Keys) -> Sequence[int]:
        """The rows that are not remembered."""
        young, old = self._young.places, self._old.places
        if young.keys().isdisjoint(keys) and old.keys().isdisjoint(keys):
            return range(len(keys))
        return [row for row, key in enumerate(keys) if key not in young and key not in old]

    def _fill(self, keys: Keys, missing: Sequence[int]) -> Answers:
        """The known answers of the rows that are not missing."""
        made, left = Answers.none_yet(len(keys)), set(range(len(keys))).difference(missing)
        for generation in (self._young, self._old):
            found = [(row, generation.places[keys[row]]) for row in left if keys[row] in generation.places]
            if found:
                rows, places = np.array(found).T
                made.put(rows, generation.answers.taken(places))
                left.difference_update(rows.tolist())
        return made

    def _remember(self, keys: Keys, answers: Answers) -> None:
        """Keep what another thread has not meanwhile."""
        if not keys:
            return
        if self._young.is_full_with(len(keys)):
            sample = keys[:: max(1, len(keys) // 64)]
            most = KEY_BYTES // max(1, sum(map(_size, sample)) // len(sample))
            self._young, self._old = _Generation(max(min(self._rows, most), len(keys))), self._young
        young, begin = self._young, len(self._young.places)
        if not young.places.keys().isdisjoint(keys):
            new = [row for row, key in enumerate(keys) if key not in young.places]
            keys, answers = [keys[row] for row in new], answers.taken(np.array(new, dtype=np.int64))
        places = range(begin, begin + len(keys))
        young.places.update(zip(keys, places, strict=True))
        young.answers.put(np.array(places, dtype=np.int64), answers)


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
