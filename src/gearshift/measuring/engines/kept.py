"""Answers, times and judgements, kept as they come, so that nothing is asked twice after an interruption."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from gearshift.measuring.engines.times import DecodeRun, PrefillTime
from gearshift.models.language_config import EngineSettings, LanguageProject
from gearshift.models.user_code import source_sha256
from gearshift.profiles.engines.prompts import Prompt
from gearshift.support.decoding import UNREADABLE
from gearshift.support.files import read_bytes

SUFFIX = ".partial"
VERSION = 3
OF_REACHING = (
    *(
        "api_key_env",
        "longest_start_s",
        "longest_s",
        "kv_tokens",
        "block_tokens",
        "weights_bytes",
        "kv_bytes_per_token",
        "picture_tokens",
    ),
)
"""Settings that neither answers nor times depend on."""


class Answered(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """One answer; `features` are those of `recorded_features`. `refused` says why there is none."""

    prompt: str
    text: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0
    features: tuple[tuple[float, ...], ...] = ()
    sums: tuple[float, ...] = ()
    refused: str = ""
    took_s: float = 0.0
    """Until its last token, with so many asked for `at_once`."""
    at_once: int = 0


class TimedPrefill(msgspec.Struct, frozen=True, kw_only=True, tag="prefill"):
    wanted: int
    repeat: int
    time: PrefillTime


class TimedDecode(msgspec.Struct, frozen=True, kw_only=True, tag="decode"):
    requests: int
    context: int
    repeat: int
    run: DecodeRun


class TimedBeside(msgspec.Struct, frozen=True, kw_only=True, tag="beside"):
    """Seconds of a step of this model and of that whose file is named `other`: alone, and beside each other."""

    other: str
    repeat: int
    alone: tuple[float, float]
    together: tuple[float, float]


Row = Answered | TimedPrefill | TimedDecode | TimedBeside


class Judged(msgspec.Struct, frozen=True, kw_only=True, tag="judged"):
    """The quality of one answer, by `_key_of_answer`."""

    answer: str
    quality: float


class _Lines:
    """Rows in a file, a line each; without a folder there are none, and none is written."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self._path = None if folder is None else folder / f"language-{name}.jsonl"

    def read(self, kind: Any) -> Iterator[Any]:
        """All rows but those that were cut short."""
        if self._path is not None and self._path.exists() and self._path.stat().st_size:
            for line in read_bytes(self._path).splitlines():
                with suppress(*UNREADABLE):
                    yield msgspec.json.decode(line, type=kind)

    def add(self, row: msgspec.Struct) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab+") as file:
                file.write(_newline_lacking(file) + msgspec.json.encode(row) + b"\n")


def _newline_lacking(file: BinaryIO) -> bytes:
    """The end of a last line that was cut short, which would spoil the next."""
    if file.seek(0, os.SEEK_END) == 0:
        return b""
    file.seek(-1, os.SEEK_END)
    return b"" if file.read(1) == b"\n" else b"\n"


class KeptRows:
    """The answers and times of one model.

    Prompts without an answer are not kept, as the engine may be mended before it is asked again.
    """

    def __init__(self, folder: Path | None, project: LanguageProject, model: str, settings: EngineSettings) -> None:
        self.name = _key(project, model, settings)
        self._lines = _Lines(folder, self.name)
        self.answers: dict[str, Answered] = {}
        self.prefills: dict[tuple[int, int], TimedPrefill] = {}
        self.decodes: dict[tuple[int, int, int], TimedDecode] = {}
        self.beside: dict[tuple[str, int], TimedBeside] = {}
        for row in self._lines.read(Row):
            self._take(row)

    def __len__(self) -> int:
        return len(self.answers) + len(self.prefills) + len(self.decodes) + len(self.beside)

    def keep(self, row: Row) -> None:
        self._take(row)
        if not (isinstance(row, Answered) and row.refused):
            self._lines.add(row)

    def _take(self, row: Row) -> None:
        match row:
            case Answered():
                self.answers[row.prompt] = row
            case TimedPrefill():
                self.prefills[row.wanted, row.repeat] = row
            case TimedDecode():
                self.decodes[row.requests, row.context, row.repeat] = row
            case TimedBeside():
                self.beside[row.other, row.repeat] = row


class KeptJudgements:
    """Qualities that one judge gave: a judge with another name, or another file, has none of them."""

    def __init__(self, folder: Path | None = None, judge: str = "", sha256: str = "") -> None:
        self._lines = _Lines(folder, f"judged-{_hash([VERSION, judge, sha256])}")
        self._quality: dict[str, float] = {row.answer: row.quality for row in self._lines.read(Judged)}

    def __len__(self) -> int:
        return len(self._quality)

    def of(self, prompt: Prompt, text: str) -> float | None:
        return self._quality.get(_key_of_answer(prompt, text))

    def keep(self, prompt: Prompt, text: str, quality: float) -> None:
        row = Judged(answer=_key_of_answer(prompt, text), quality=quality)
        self._quality[row.answer] = quality
        self._lines.add(row)

    def lacking(self, prompts: Sequence[Prompt], texts: Sequence[Sequence[str]]) -> int:
        """The answers (models, prompts) that are still to be judged, each counted once."""
        keys = {_key_of_answer(*pair) for row in texts for pair in zip(prompts, row, strict=True)}
        return len(keys - self._quality.keys())


def kept_judgements(folder: Path | None, project: LanguageProject, directory: Path) -> KeptJudgements:
    """Those of the project's judge, which `judge_of` has imported from `directory`."""
    if not project.judge:
        return KeptJudgements()
    return KeptJudgements(folder, project.judge, source_sha256(project.judge, directory))


def _key_of_answer(prompt: Prompt, text: str) -> str:
    """A hash of all that a judge is given, and of what was asked."""
    return _hash([prompt.key, prompt.reference, text])


def partial_folder(profile_folder: Path) -> Path:
    return profile_folder.resolve().with_name(profile_folder.resolve().name + SUFFIX)


def kept_files(profile_folder: Path) -> list[Path]:
    folder = partial_folder(profile_folder)
    return sorted(folder.glob("language-*.jsonl")) if folder.is_dir() else []


def _key(project: LanguageProject, model: str, settings: EngineSettings) -> str:
    """A hash of what answers and times of `model` depend on, except the prompts."""
    known = {name: value for name, value in msgspec.to_builtins(settings).items() if name not in OF_REACHING}
    content = [VERSION, model, known, project.most_tokens, project.temperature]
    return _hash(content)


def _hash(content: list[Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:24]
