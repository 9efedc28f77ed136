"""Answers and times of endpoints, kept as they come, so that nothing is asked twice after an interruption."""

import hashlib
from contextlib import suppress
from pathlib import Path

import msgspec

from gearshift.measuring.engines.times import DecodeRun, PrefillTime
from gearshift.models.language_config import EngineSettings, LanguageProject

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
    """Until its last token."""


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


class KeptRows:
    """The rows of one model, a line each; a last line that was cut short is left out.

    Prompts without an answer are not kept, as the engine may be mended before it is asked again.
    """

    def __init__(self, folder: Path | None, project: LanguageProject, model: str, settings: EngineSettings) -> None:
        self.name = _key(project, model, settings)
        self._path = None if folder is None else folder / f"language-{self.name}.jsonl"
        self.answers: dict[str, Answered] = {}
        self.prefills: dict[tuple[int, int], TimedPrefill] = {}
        self.decodes: dict[tuple[int, int, int], TimedDecode] = {}
        self.beside: dict[tuple[str, int], TimedBeside] = {}
        if self._path is not None and self._path.exists():
            for line in self._path.read_bytes().splitlines():
                with suppress(msgspec.MsgspecError):
                    self._take(msgspec.json.decode(line, type=Row))

    def __len__(self) -> int:
        return len(self.answers) + len(self.prefills) + len(self.decodes) + len(self.beside)

    def keep(self, row: Row) -> None:
        self._take(row)
        if self._path is not None and not (isinstance(row, Answered) and row.refused):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(row) + b"\n")

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


def partial_folder(profile_folder: Path) -> Path:
    return profile_folder.resolve().with_name(profile_folder.resolve().name + SUFFIX)


def kept_files(profile_folder: Path) -> list[Path]:
    folder = partial_folder(profile_folder)
    return sorted(folder.glob("language-*.jsonl")) if folder.is_dir() else []


def forget(profile_folder: Path) -> None:
    """Delete only what was kept for a profile that is now written."""
    for path in kept_files(profile_folder):
        path.unlink(missing_ok=True)
    with suppress(OSError):  # missing, or it holds other files
        partial_folder(profile_folder).rmdir()


def _key(project: LanguageProject, model: str, settings: EngineSettings) -> str:
    """A hash of what answers and times of `model` depend on, except the prompts."""
    known = {name: value for name, value in msgspec.to_builtins(settings).items() if name not in OF_REACHING}
    content = [VERSION, model, known, project.most_tokens, project.temperature]
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:24]
