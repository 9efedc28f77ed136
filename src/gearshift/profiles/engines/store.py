"""A profile of language models on disk: a folder with `language.json` and `answers.npz`, and a hash of both."""

import dataclasses
from pathlib import Path

import msgspec
import numpy as np

from gearshift.errors import InvalidInput, require
from gearshift.plans.plan_file import decode_json
from gearshift.profiles.engines.certainty import TextCertainty
from gearshift.profiles.engines.engine_profile import EngineProfile
from gearshift.profiles.engines.judge import FittedJudge
from gearshift.profiles.engines.language_profile import AnswerRecords, LanguageProfile
from gearshift.support.files import PathLike, read_bytes, replace_folder
from gearshift.support.stored_arrays import (
    content_hash,
    encode_arrays,
    encode_metadata,
    read_arrays,
    require_replaceable_folder,
)

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


class _Metadata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    schema_version: int
    sha256: str
    operator: str
    models: tuple[str, ...]
    judged: bool
    engines: tuple[EngineProfile, ...]
    certainty: TextCertainty
    ranks: tuple[str, ...] = ()
    judges: tuple[FittedJudge, ...] = ()
    overhead_s: float = 0.0
    project: str | None = None
    notes: dict[str, str] = {}
    warnings: tuple[str, ...] = ()


_IN_BOTH = {field.name for field in dataclasses.fields(LanguageProfile)} & set(_Metadata.__struct_fields__)


class _Versioned(msgspec.Struct):
    schema_version: int = 0


def is_language_profile(folder: PathLike) -> bool:
    return (Path(folder) / METADATA_FILE).is_file()


def write_language_profile(folder: PathLike, profile: LanguageProfile) -> LanguageProfile:
    """Write `profile` into `folder`, whole or not at all, and return it with its hash.

    The same profile gives the same bytes. An older profile of language models there is replaced;
    raises `InvalidInput` for a folder that holds anything else, and where writing fails.
    """
    folder = Path(folder).resolve()
    require_language_replaceable(folder)
    arrays = {
        name: np.ascontiguousarray(getattr(profile.answers, name), dtype=dtype) for name, (dtype, _) in _FORMATS.items()
    }
    metadata = _Metadata(
        schema_version=SCHEMA_VERSION,
        models=profile.models,
        judged=profile.answers.judged,
        **{name: getattr(profile, name) for name in _IN_BOTH},
    )
    # Decoded once, so that the hash covers exactly the numbers that a reader gets (1.0 for 1).
    metadata = msgspec.json.decode(encode_metadata(metadata), type=_Metadata)
    metadata = msgspec.structs.replace(metadata, sha256=content_hash(metadata, arrays))
    content = {METADATA_FILE: msgspec.json.format(encode_metadata(metadata), indent=1) + b"\n"}
    replace_folder(folder, content | {ARRAYS_FILE: encode_arrays(arrays)})
    return dataclasses.replace(profile, sha256=metadata.sha256)


def read_language_profile(folder: PathLike, *, remedy: str = REMEDY) -> LanguageProfile:
    """Read the profile of language models in `folder`.

    Raises `InvalidInput` where it is missing (with `remedy`), damaged, changed or of another
    version.
    """
    folder = Path(folder)
    require(folder.is_dir(), "there is no such profile folder", where=str(folder), remedy=remedy)
    path = folder / METADATA_FILE
    require(path.exists(), "no such file", where=str(path), remedy=remedy)
    data = read_bytes(path, remedy=REMEDY)
    version = decode_json(data, _Versioned, where=str(path), remedy=REMEDY).schema_version
    require(
        version == SCHEMA_VERSION,
        f"schema_version is {version}, this version of gearshift reads {SCHEMA_VERSION}",
        where=str(path),
        remedy=REMEDY,
    )
    metadata = decode_json(data, _Metadata, where=str(path), remedy=REMEDY)
    arrays = read_arrays(folder / ARRAYS_FILE, tuple(_FORMATS), _FORMATS, remedy=REMEDY)
    require(
        content_hash(metadata, arrays) == metadata.sha256,
        f"the content does not match the hash in {METADATA_FILE}, field sha256: a file was changed or mixed up",
        where=str(folder),
        remedy=REMEDY,
    )
    try:
        answers = AnswerRecords(models=metadata.models, judged=metadata.judged, **arrays)
        return LanguageProfile(answers=answers, **{name: getattr(metadata, name) for name in _IN_BOTH})
    except InvalidInput as error:
        raise InvalidInput(error.what, where=str(folder), remedy=REMEDY) from error


def require_language_replaceable(folder: PathLike) -> None:
    """Raise `InvalidInput` where `folder` holds anything but a profile of language models."""
    require_replaceable_folder(Path(folder), (METADATA_FILE, ARRAYS_FILE), what="a profile of language models")
