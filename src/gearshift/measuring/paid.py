"""Keeps endpoints' answers to an unfinished profile, so that no batch is paid for twice.

They are kept next to the profile's folder. Each batch is a separate file, written atomically, so
that `profile` can continue after any interruption. A file's name has a hash of the model's
settings and, for run times, of how they are measured. Answers are found by the content of their
samples, so that other samples may be added or removed.
"""

import hashlib
import itertools
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput
from gearshift.model import LABEL
from gearshift.models.config import ModelSettings, Project
from gearshift.models.samples import Samples
from gearshift.request import Request, Sample
from gearshift.runtime.wire.batch_messages import settle
from gearshift.runtime.wire.messages import Done
from gearshift.support.decoding import UNREADABLE
from gearshift.support.files import read_bytes, write_atomically

SUFFIX = ".partial"
VERSION = 1
KEY_LETTERS = 24
_NAME = re.compile(rf"\.?(?:run|answers)-[0-9a-f]{{{KEY_LETTERS}}}-[0-9]{{6,}}\.(?:json|bin)(?:\..*)?")
OF_PATIENCE = ("most_attempts", "longest_asking_s", "most_attempts_served")
OF_ASKING = ("longest_s", "most_requests", *OF_PATIENCE)
OF_REACHING = ("api_key_env", "api_key_header", "ca_file")

Timed = tuple[tuple[float, ...], float]
"""Seconds in each segment, and of the round trip."""


class KeptRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A timed batch: seconds in each segment, and of the round trip."""

    rows: int
    run_s: tuple[float, ...]
    trip_s: float


class KeptAnswers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker's answer to a batch, with hashes of the samples; its body follows in the file."""

    samples: tuple[str, ...]
    done: Done


class PaidWork:
    """The kept batches in the folder next to `profile_folder`; without one, none are kept."""

    def __init__(self, profile_folder: Path | None) -> None:
        self._folder = None if profile_folder is None else partial_folder(profile_folder)
        self._next: dict[str, int] = {}

    @property
    def folder(self) -> Path | None:
        return self._folder

    def runs(self, key: str) -> dict[int, KeptRun]:
        found: dict[int, KeptRun] = {}
        for path in self._files("run", key):
            try:
                found[_number(path)] = msgspec.json.decode(read_bytes(path), type=KeptRun)
            except UNREADABLE:
                continue  # of another version: it is measured again
        return found

    def keep_run(self, key: str, number: int, run: KeptRun) -> None:
        self._write("run", key, number, "json", msgspec.json.encode(run))

    def answers(self, key: str) -> Iterator[tuple[KeptAnswers, memoryview]]:
        for path in self._files("answers", key):
            try:
                head, _, body = read_bytes(path).partition(b"\n")
                yield msgspec.json.decode(head, type=KeptAnswers), memoryview(body)
            except UNREADABLE:
                continue

    def keep_answers(self, key: str, answers: KeptAnswers, body: memoryview | bytes) -> None:
        if key not in self._next:
            self._next[key] = 1 + max((_number(path) for path in self._files("answers", key)), default=-1)
        self._write("answers", key, self._next[key], "bin", msgspec.json.encode(answers) + b"\n" + bytes(body))
        self._next[key] += 1

    def _files(self, kind: str, key: str) -> list[Path]:
        return [] if self._folder is None else sorted(self._folder.glob(f"{kind}-{key}-*"), key=_number)

    def _write(self, kind: str, key: str, number: int, suffix: str, data: bytes) -> None:
        if self._folder is not None:
            write_atomically(self._folder / f"{kind}-{key}-{number:06}.{suffix}", data)


class PaidRuns:
    """The timed batches in order; kept ones are not run again."""

    def __init__(self, work: PaidWork, key: str) -> None:
        self._work, self._key, self._before = work, key, work.runs(key)
        self._numbers = itertools.count()
        self._warm = not self._before

    @property
    def kept(self) -> int:
        return len(self._before)

    async def run(self, rows: int, run: Callable[[], Awaitable[Timed]]) -> Timed:
        """The kept times of the next batch, of `rows` rows, or else those of running it now.

        The first run after kept ones opens connections: it runs twice, and the second one counts.
        """
        number = next(self._numbers)
        before = self._before.get(number)
        if before is not None and before.rows == rows:
            return before.run_s, before.trip_s
        if not self._warm:
            self._warm = True
            await run()
        run_s, trip_s = await run()
        self._work.keep_run(self._key, number, KeptRun(rows=rows, run_s=run_s, trip_s=trip_s))
        return run_s, trip_s


def count_as_wrong(batch: Sequence[Sample], done: Done) -> None:
    """Give samples with an unusable answer certainty 0 and a label that is never correct."""
    for row in done.unusable:
        batch[row].certainty, batch[row].result = 0.0, {LABEL: np.array([""], dtype=object)}


class Kept:
    """Run times and answers of remote models from earlier attempts, kept for later ones.

    Without remote models (`names` is empty) nothing is kept: local models cost no money.
    """

    def __init__(
        self, work: PaidWork, project: Project, directory: Path, names: Sequence[str], samples: Samples, seed: int
    ) -> None:
        self._work = work if names else PaidWork(None)
        self.runs = PaidRuns(self._work, runs_key(project, names, samples, seed) if names else "")
        self._keys = {name: answers_key(project, directory, name) for name in names}
        self._samples = sample_names(samples.arrays) if names else []
        self._answered = {name: self._answers(name) for name in names}

    @property
    def found(self) -> str:
        answers = sum(len(rows) for rows in self._answered.values())
        return f"{self.runs.kept} timed batches and {answers} answers" if self.runs.kept or answers else ""

    def answered(self, name: str) -> Mapping[int, Sample]:
        return self._answered.get(name, {})

    def keep(self, name: str, rows: Sequence[int], done: Done, body: memoryview) -> None:
        if name in self._keys:
            answers = KeptAnswers(samples=tuple(self._samples[row] for row in rows), done=done)
            self._work.keep_answers(self._keys[name], answers, body)

    def _answers(self, name: str) -> dict[int, Sample]:
        row_of = {sample: row for row, sample in enumerate(self._samples)}
        found: dict[int, Sample] = {}
        request = Request(id=0, operator="", arrived_ns=0)
        for answers, body in self._work.answers(self._keys[name]):
            batch = [Sample(request, i, i) for i in range(len(answers.samples))]
            try:
                settle(batch, answers.done, body, name)
            except (ValueError, IndexError, KeyError):
                continue  # of another version
            count_as_wrong(batch, answers.done)
            pairs = zip(answers.samples, batch, strict=True)
            found |= {row_of[sample]: one for sample, one in pairs if sample in row_of and one.result is not None}
        return found


def partial_folder(profile_folder: Path) -> Path:
    return profile_folder.resolve().with_name(profile_folder.resolve().name + SUFFIX)


def kept_files(profile_folder: Path) -> list[Path]:
    folder = partial_folder(profile_folder)
    return [path for path in folder.iterdir() if _NAME.fullmatch(path.name)] if folder.is_dir() else []


def forget(profile_folder: Path, kept: Callable[[Path], list[Path]] = kept_files) -> None:
    """Delete only the files kept for a profile that is now written."""
    for path in kept(profile_folder):
        path.unlink(missing_ok=True)
    with suppress(OSError):  # missing, or it holds other files
        partial_folder(profile_folder).rmdir()


# Names ---------------------------------------------------------------------------------------------------------------


def answers_key(project: Project, directory: Path, name: str) -> str:
    """A hash of everything that answers of remote model `name` depend on, except the samples."""
    return _hash(
        [
            VERSION,
            name,
            _settings(project.models[name], without=OF_ASKING),
            _certainty(project.operator_with(name).certainty, directory),
        ]
    )


def runs_key(project: Project, names: Sequence[str], samples: Samples, seed: int) -> str:
    """A hash of everything that run times of remote models `names`, timed in turn, depend on."""
    how = msgspec.to_builtins(project.profile)
    models = {name: _settings(project.models[name], without=OF_PATIENCE) for name in names}
    return _hash([VERSION, models, how, seed, sample_names(samples.arrays)])


def sample_names(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """A name for each sample, from a hash of its content; equal samples get distinct names."""
    n = len(next(iter(arrays.values())))
    digests = [hashlib.sha256() for _ in range(n)]
    for name in sorted(arrays):
        for digest, row in zip(digests, arrays[name], strict=True):
            digest.update(f"\n{name}\n".encode() + _content(row))
    seen: dict[str, int] = defaultdict(int)
    names = []
    for digest in digests:
        text = digest.hexdigest()[:32]
        names.append(f"{text}.{seen[text]}")
        seen[text] += 1
    return names


def _content(row: Any) -> bytes:
    array = np.asarray(row)
    if array.dtype.kind in "OSU":
        return b"".join(b"%d %b" % (len(text), text) for text in map(_utf8, array.ravel().tolist()))
    return f"{array.dtype.str} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes()


def _utf8(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def _settings(settings: ModelSettings, *, without: tuple[str, ...]) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(settings)
    plain["remote"] = {name: value for name, value in plain["remote"].items() if name not in without + OF_REACHING}
    return {name: value for name, value in plain.items() if name != "memory_mib"}


def _certainty(certainty: str, directory: Path) -> str:
    file, colon, _ = certainty.rpartition(":")
    if not colon:
        return certainty
    try:
        return certainty + hashlib.sha256((directory / file).read_bytes()).hexdigest()
    except OSError as error:
        raise InvalidInput(f"cannot be read ({error.strerror})", where=str(directory / file)) from None


def _hash(content: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:KEY_LETTERS]


def _number(path: Path) -> int:
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isdigit() else -1
