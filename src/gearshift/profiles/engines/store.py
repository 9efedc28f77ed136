"""A profile of language models on disk: a folder with `language.json` and `answers.npz`, and a hash of both."""

from pathlib import Path

import msgspec

from gearshift.profiles.engines.certainty import TextCertainty
from gearshift.profiles.engines.engine_profile import EngineProfile, Sharing
from gearshift.profiles.engines.judge import FittedJudge
from gearshift.profiles.engines.language_profile import AnswerRecords, LanguageProfile
from gearshift.support.files import PathLike
from gearshift.support.stored_arrays import RecordsFolder, StoredMetadata

SCHEMA_VERSION = 1
METADATA_FILE = "language.json"
ARRAYS_FILE = "answers.npz"
REMEDY = "make the profile anew with `gearshift profile`"

_FORMATS = {
    "quality": ("<f8", 2),
    "certainty": ("<f8", 3),
    "prompt_tokens": ("<i8", 2),
    "output_tokens": ("<i8", 2),
    "part": ("|i1", 1),
}
"""Types and dimensions of the arrays."""


class _Metadata(StoredMetadata, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    operator: str
    models: tuple[str, ...]
    judged: bool
    engines: tuple[EngineProfile, ...]
    certainty: TextCertainty
    ranks: tuple[str, ...] = ()
    ranks_at: tuple[tuple[str, int | None], ...] = ()
    prompt_keys: tuple[str, ...] = ()
    judges: tuple[FittedJudge, ...] = ()
    sharing: tuple[Sharing, ...] = ()
    overhead_s: float = 0.0
    project: str | None = None
    notes: dict[str, str] = msgspec.field(default_factory=dict)
    warnings: tuple[str, ...] = ()


_FOLDER = RecordsFolder(
    "a profile of language models",
    _Metadata,
    SCHEMA_VERSION,
    METADATA_FILE,
    ARRAYS_FILE,
    _FORMATS,
    REMEDY,
    LanguageProfile,
    "answers",
    AnswerRecords,
)


def is_language_profile(folder: PathLike) -> bool:
    return (Path(folder) / METADATA_FILE).is_file()


def write_language_profile(folder: PathLike, profile: LanguageProfile) -> LanguageProfile:
    """Write `profile` into `folder`, whole or not at all, and return it with its hash.

    The same profile gives the same bytes. An older profile of language models there is replaced;
    raises `InvalidInput` for a folder that holds anything else, and where writing fails.
    """
    return _FOLDER.write(folder, profile)


def read_language_profile(folder: PathLike, *, remedy: str = REMEDY) -> LanguageProfile:
    """Read the profile of language models in `folder`.

    Raises `InvalidInput` where it is missing (with `remedy`), damaged, changed or of another
    version.
    """
    return _FOLDER.read(Path(folder), remedy=remedy)


def require_language_replaceable(folder: PathLike) -> None:
    """Raise `InvalidInput` where `folder` holds anything but a profile of language models."""
    _FOLDER.require_replaceable(Path(folder))
