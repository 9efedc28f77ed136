import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.profiles.engines.engine_profile import EngineProfile, Sharing, StepCurve
from gearshift.profiles.engines.language_profile import AnswerRecords, LanguageProfile
from gearshift.profiles.engines.store import is_language_profile, read_language_profile, write_language_profile


def engine(model: str, seconds: float = 0.01) -> EngineProfile:
    return EngineProfile(
        model=model,
        device_kind="gpu",
        prefill=StepCurve(tokens=(1, 64), step_s=(seconds, 4 * seconds)),
        decode=StepCurve(tokens=(1, 8), step_s=(seconds, 2 * seconds)),
        kv_blocks=100,
        largest_batched_tokens=64,
        largest_running=8,
    )


def small_profile() -> LanguageProfile:
    answers = AnswerRecords(
        models=("small", "large"),
        quality=np.array([[1.0, 0.0, 0.5], [1.0, 1.0, 1.0]]),
        certainty=-np.arange(24.0).reshape(2, 3, 4),
        prompt_tokens=np.array([[3, 4, 5], [3, 4, 6]]),
        output_tokens=np.array([[10, 11, 12], [20, 21, 22]]),
        part=np.array([0, 1, 0], dtype=np.int8),
    )
    return LanguageProfile(
        operator="chat",
        engines=(engine("small"), engine("large", 0.1)),
        answers=answers,
        ranks=("small",),
        ranks_at=(("small", 4), ("small", None)),
        prompt_keys=("a", "b", "c"),
        sharing=(Sharing(model="small", beside="large", device_kind="gpu", factor=1.2, interval=(1.1, 1.4)),),
        project="../gearshift.toml",
        warnings=("a sentence",),
        notes={"seen": "yes"},
    )


def test_a_profile_that_was_written_is_read_with_its_hash(tmp_path: Path) -> None:
    written = write_language_profile(tmp_path / "p", small_profile())
    read = read_language_profile(tmp_path / "p")
    assert is_language_profile(tmp_path / "p")
    assert read.sha256 == written.sha256 != ""
    for name in ("quality", "certainty", "prompt_tokens", "output_tokens", "part"):
        assert np.array_equal(getattr(read.answers, name), getattr(written.answers, name))
    assert replace(read, answers=written.answers) == written


def test_a_profile_without_keys_of_prompts_is_read_as_before(tmp_path: Path) -> None:
    write_language_profile(tmp_path / "p", replace(small_profile(), ranks_at=(), prompt_keys=()))
    assert not {"ranks_at", "prompt_keys"} & set(json.loads((tmp_path / "p/language.json").read_text()))
    assert read_language_profile(tmp_path / "p").prompt_keys == ()


def test_the_same_profile_gives_the_same_bytes_and_another_one_another_hash(tmp_path: Path) -> None:
    first = write_language_profile(tmp_path / "a", small_profile())
    write_language_profile(tmp_path / "b", read_language_profile(tmp_path / "a"))
    for name in ("language.json", "answers.npz"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    slower = replace(small_profile(), engines=(engine("small", 0.02), engine("large", 0.1)))
    assert write_language_profile(tmp_path / "a", slower).sha256 != first.sha256


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InvalidInput, match=r"holds 'thesis.txt'"):
        write_language_profile(tmp_path, small_profile())
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_damage_is_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    with pytest.raises(InvalidInput, match="no such profile folder"):
        read_language_profile(folder)
    assert not is_language_profile(folder)
    write_language_profile(folder, small_profile())
    metadata, arrays = ((folder / name).read_bytes() for name in ("language.json", "answers.npz"))

    def sentence(of_metadata: bytes, of_arrays: bytes) -> str:
        (folder / "language.json").write_bytes(of_metadata)
        (folder / "answers.npz").write_bytes(of_arrays)
        with pytest.raises(InvalidInput) as caught:
            read_language_profile(folder)
        return str(caught.value)

    content = json.loads(metadata)
    assert "damaged or cut short" in sentence(metadata, arrays[:100])
    assert "does not match the hash" in sentence(metadata.replace(b'"chat"', b'"chut"'), arrays)
    assert "schema_version is 7" in sentence(msgspec.json.encode(content | {"schema_version": 7}), arrays)
    assert "language.json" in sentence(metadata[:50], arrays)
    assert "unknown field" in sentence(msgspec.json.encode(content | {"colour": 1}), arrays)
    broken = content["engines"][0] | {"largest_running": 9}
    assert "runs 9 requests" in sentence(msgspec.json.encode(content | {"engines": [broken]}), arrays)


def test_arrays_of_another_profile_are_noticed(tmp_path: Path) -> None:
    write_language_profile(tmp_path / "a", small_profile())
    others = replace(small_profile().answers, quality=np.ones((2, 3)))
    write_language_profile(tmp_path / "b", replace(small_profile(), answers=others))
    (tmp_path / "b/answers.npz").replace(tmp_path / "a/answers.npz")
    with pytest.raises(InvalidInput, match="changed or mixed up"):
        read_language_profile(tmp_path / "a")
