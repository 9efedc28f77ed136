"""A profile of language models on disk: a folder with `language.json` and `answers.npz`, and a hash of both."""

import dataclasses
from pathlib import Path

import msgspec
import numpy as np

from gearshift.errors import InvalidInput, require
from gearshift.profiles.engines.certainty import TextCertainty
from gearshift.profiles.engines.engine_profile import EngineProfile, Sharing
from gearshift.profiles.engines.judge import FittedJudge
from gearshift.profiles.engines.language_profile import AnswerRecords, LanguageProfile
from gearshift.support.files import PathLike
from gearshift.support.stored_arrays import ArraysFolder, StoredMetadata

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


_IN_BOTH = {field.name for field in dataclasses.fields(LanguageProfile)} & set(_Metadata.__struct_fields__)


_FOLDER = ArraysFolder(
    "a profile of language models", _Metadata, SCHEMA_VERSION, METADATA_FILE, ARRAYS_FILE, _FORMATS, REMEDY
)


def is_language_profile(folder: PathLike) -> bool:
    return (Path(folder) / METADATA_FILE).is_file()


def write_language_profile(folder: PathLike, profile: LanguageProfile) -> LanguageProfile:
    """Write `profile` into `folder`, whole or not at all, and return it with its hash.

    The same profile gives the same bytes. An older profile of language models there is replaced;
    raises `InvalidInput` for a folder that holds anything else, and where writing fails.
    """
    arrays = {
        name: np.ascontiguousarray(getattr(profile.answers, name), dtype=dtype) for name, (dtype, _) in _FORMATS.items()
    }
    metadata = _Metadata(
        schema_version=SCHEMA_VERSION,
        models=profile.models,
        judged=profile.answers.judged,
        **{name: getattr(profile, name) for name in _IN_BOTH},
    )
    return dataclasses.replace(profile, sha256=_FOLDER.write(Path(folder).resolve(), metadata, arrays))


def read_language_profile(folder: PathLike, *, remedy: str = REMEDY) -> LanguageProfile:
    """Read the profile of language models in `folder`.

    Raises `InvalidInput` where it is missing (with `remedy`), damaged, changed or of another
    version.
    """
    folder = Path(folder)
    require(folder.is_dir(), "there is no such profile folder", where=str(folder), remedy=remedy)
    metadata = _FOLDER.read_metadata(folder, remedy=remedy)
    arrays = _FOLDER.read_arrays(folder, metadata, tuple(_FORMATS))
    try:
        answers = AnswerRecords(models=metadata.models, judged=metadata.judged, **arrays)
        return LanguageProfile(answers=answers, **{name: getattr(metadata, name) for name in _IN_BOTH})
    except InvalidInput as error:
        raise InvalidInput(error.what, where=str(folder), remedy=REMEDY) from error


def require_language_replaceable(folder: PathLike) -> None:
    """Raise `InvalidInput` where `folder` holds anything but a profile of language models."""
    _FOLDER.require_replaceable(Path(folder))
