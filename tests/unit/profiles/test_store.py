import dataclasses
import io
import json
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.model import TensorSpec
from gearshift.profiles.engines.store import write_language_profile
from gearshift.profiles.performance_model import PerformanceModel
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.profiles.store import read_profile, write_profile
from tests.two_language_models import language_profile

finite = st.floats(-1e9, 1e9)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


def curve(model: str, seconds: float = 0.01) -> RunTimeCurve:
    return RunTimeCurve(model=model, batch_sizes=(1, 4), median_s=(seconds, 2 * seconds), p95_s=(seconds, 3 * seconds))


def small_profile() -> Profile:
    predictions = PredictionRecords(
        models=("small", "large"),
        quality=np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]]),
        certainty=np.array([[0.9, 0.1, 0.8], [0.5, 0.7, 0.9]]),
        part=np.array([0, 1, 0], dtype=np.int8),
        label=np.array(["cat", "dog", "cat"]),
    )
    return Profile(operator="pets", curves=(curve("small"), curve("large", 0.1)), predictions=predictions)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    models = tuple(draw(st.lists(texts.filter(bool), min_size=1, max_size=3, unique=True)))
    m, n = len(models), draw(st.integers(2, 4))

    def grid(values: st.SearchStrategy[Any]) -> list[list[Any]]:
        return draw(st.lists(st.lists(values, min_size=n, max_size=n), min_size=m, max_size=m))

    segments = draw(st.integers(1, 3))
    predictions = PredictionRecords(
        models=models,
        quality=np.array(grid(st.floats(0, 1))),
        certainty=np.array(grid(finite)),
        part=np.array([0, 1, *[0] * (n - 2)], dtype=np.int8),
        labelled=draw(st.booleans()),
        label=np.array(draw(st.lists(texts, min_size=n, max_size=n)), dtype=np.str_) if draw(st.booleans()) else None,
        prediction=np.array(grid(texts), dtype=np.str_) if draw(st.booleans()) else None,
        output_tokens=np.array(grid(st.integers(0, 2**53))) if draw(st.booleans()) else None,
        exit_segment=np.array(grid(st.integers(0, segments - 1))) if draw(st.booleans()) else None,
    )
    return Profile(
        operator=draw(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)),
        curves=tuple(
            msgspec.structs.replace(curve(model, draw(st.floats(1e-9, 1e3))), segment=segment)
            for model in models
            for segment in range(segments)
        ),
        predictions=predictions,
        inputs=(TensorSpec(name="input", datatype="FP32", shape=(-1, 3)),),
        outputs=(TensorSpec(name="label", datatype="BYTES", shape=(-1,)),),
        front_end_s=draw(st.floats(0, 1)),
        router_s=draw(st.floats(0, 1)),
        project=draw(st.none() | texts),
        notes=draw(st.dictionaries(texts, texts, max_size=3)),
    )


def same(a: Profile, b: Profile) -> bool:
    arrays = all(
        np.array_equal(getattr(a.predictions, f.name), getattr(b.predictions, f.name))
        for f in dataclasses.fields(PredictionRecords)
    )
    rest = [f.name for f in dataclasses.fields(Profile) if f.name not in ("predictions", "sha256")]
    return arrays and all(getattr(a, name) == getattr(b, name) for name in rest)


@settings(deadline=None)
@given(profiles())
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, profile: Profile) -> None:
    folder = tmp_path_factory.mktemp("store") / "profile"
    written = write_profile(profile, folder)
    read = read_profile(folder)
    assert same(profile, read)
    assert written.sha256 == read.sha256 != ""


def test_the_same_profile_gives_the_same_bytes_at_another_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_profile(small_profile(), tmp_path / "a")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1e7)
    write_profile(small_profile(), tmp_path / "b")
    for name in ("profile.json", "predictions.npz"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_profile_that_was_read_and_written_again_is_the_same(tmp_path: Path) -> None:
    write_profile(small_profile(), tmp_path / "a")
    write_profile(read_profile(tmp_path / "a"), tmp_path / "b")
    assert (tmp_path / "a/profile.json").read_bytes() == (tmp_path / "b/profile.json").read_bytes()


def test_whole_numbers_and_numpy_numbers_in_a_curve_do_not_change_the_hash(tmp_path: Path) -> None:
    whole = dataclasses.replace(small_profile(), curves=(curve("small", 1), curve("large", np.float64(2.0))))
    plain = dataclasses.replace(small_profile(), curves=(curve("small", 1.0), curve("large", 2.0)))
    assert write_profile(whole, tmp_path / "a").sha256 == write_profile(plain, tmp_path / "b").sha256
    assert read_profile(tmp_path / "a").curves == plain.curves


def test_the_width_of_text_arrays_does_not_change_the_hash(tmp_path: Path) -> None:
    profile = small_profile()
    predictions = dataclasses.replace(profile.predictions, label=np.array(["cat", "dog", "cat"], dtype="<U40"))
    wide = dataclasses.replace(profile, predictions=predictions)
    assert write_profile(profile, tmp_path / "a").sha256 == write_profile(wide, tmp_path / "b").sha256


@pytest.mark.parametrize("change", ["operator", "certainty", "project"])
def test_another_field_gives_another_hash(tmp_path: Path, change: str) -> None:
    changed = dataclasses.replace(small_profile(), **{change: "other"})
    assert write_profile(small_profile(), tmp_path / "a").sha256 != write_profile(changed, tmp_path / "b").sha256


def test_an_older_profile_is_replaced(tmp_path: Path) -> None:
    write_profile(small_profile(), tmp_path / "p")
    write_profile(dataclasses.replace(small_profile(), operator="new"), tmp_path / "p")
    assert read_profile(tmp_path / "p").operator == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["p"]


def test_an_empty_folder_becomes_a_profile(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    write_profile(small_profile(), tmp_path / "p")
    assert read_profile(tmp_path / "p").operator == "pets"


def test_a_folder_with_other_files_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text("precious")
    with pytest.raises(InvalidInput, match=r"'models.py', which is no part of a profile.*choose a new or empty folder"):
        write_profile(small_profile(), tmp_path)
    assert (tmp_path / "models.py").read_text() == "precious"


def test_a_profile_folder_with_another_file_inside_is_never_replaced(tmp_path: Path) -> None:
    write_profile(small_profile(), tmp_path / "p")
    (tmp_path / "p/plan.json").write_text("precious")
    with pytest.raises(InvalidInput, match=r"plan\.json"):
        write_profile(small_profile(), tmp_path / "p")
    assert (tmp_path / "p/plan.json").read_text() == "precious"


def test_a_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("precious")
    with pytest.raises(InvalidInput, match="is a file, needs a folder"):
        write_profile(small_profile(), tmp_path / "p")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidInput, match=r"cannot be written .*choose another place"):
        write_profile(small_profile(), tmp_path / "file" / "p")


def test_a_missing_folder_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such profile folder; make the profile anew with `gearshift profile`"):
        read_profile(tmp_path / "p")


def edit(change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        content = json.loads((folder / "profile.json").read_text())
        change(content)
        (folder / "profile.json").write_text(json.dumps(content))

    return apply


def rezip(**arrays: object) -> Callable[[Path], None]:
    return lambda folder: np.savez(folder / "predictions.npz", **arrays)  # type: ignore[arg-type]


def rewrite(compression: int, *members: tuple[str, bytes]) -> Callable[[Path], None]:
    """In place of the arrays, members of these names and bytes."""

    def apply(folder: Path) -> None:
        with zipfile.ZipFile(folder / "predictions.npz", "w", compression) as archive:
            for name, data in members:
                archive.writestr(name, data)

    return apply


def lying(shape: str) -> tuple[str, bytes]:
    """The array `quality` without content, and a header that says otherwise."""
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return "quality.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head


OTHERS = [(f"{name}.npy", b"") for name in ("certainty", "part", "label")]
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no metadata": (lambda p: (p / "profile.json").unlink(), r"profile\.json: no such file"),
    "no arrays": (lambda p: (p / "predictions.npz").unlink(), r"predictions\.npz: no such file"),
    "empty metadata": (lambda p: (p / "profile.json").write_bytes(b""), r"profile\.json: the file is empty"),
    "empty arrays": (lambda p: (p / "predictions.npz").write_bytes(b""), r"predictions\.npz: the file is empty"),
    "cut metadata": (lambda p: cut(p / "profile.json"), r"profile\.json: Input data was truncated"),
    "cut arrays": (lambda p: cut(p / "predictions.npz"), r"predictions\.npz: the file is damaged or cut short"),
    "no zip": (lambda p: (p / "predictions.npz").write_bytes(b"hello"), "damaged or cut short"),
    "metadata in Latin-1": (lambda p: (p / "profile.json").write_bytes(b'{"operator": "\xe9"}'), r"profile\.json"),
    "other version": (edit(lambda c: c.update(schema_version=9)), "schema_version is 9, this version .* reads 1"),
    "no version": (edit(lambda c: c.pop("schema_version")), "schema_version is 0"),
    "unknown key": (edit(lambda c: c.update(colour="red")), "unknown field `colour`"),
    "missing key": (edit(lambda c: c.pop("operator")), "required field `operator`"),
    "wrong curve": (edit(lambda c: c["curves"][0].update(cores="x")), r"\$\.curves\[0\]\.cores"),  # type: ignore[index]
    "changed metadata": (edit(lambda c: c.update(operator="x")), "does not match the hash"),
    "unknown array": (edit(lambda c: c.update(arrays=["secret"])), "arrays is"),
    "pickled array": (
        rezip(quality=np.array([{}]), certainty=np.zeros(1), part=np.zeros(1), label=np.zeros(1)),
        "Object arrays cannot be loaded",
    ),
    "compressed arrays": (
        rewrite(zipfile.ZIP_DEFLATED, ("quality.npy", bytes(20 << 20)), *OTHERS),
        "array 'quality.npy' is compressed, and plain ones are needed",
    ),
    "a header of more than there is": (
        rewrite(zipfile.ZIP_STORED, lying("(2, 300000000)"), *OTHERS),
        r"type float64 and shape \(2, 300000000\) has 0 bytes",
    ),
    "a negative shape": (rewrite(zipfile.ZIP_STORED, lying("(-1, 0)"), *OTHERS), r"shape \(-1, 0\) has 0 bytes"),
    "many arrays": (
        rewrite(zipfile.ZIP_STORED, *((f"a{i}.npy", b"") for i in range(1000))),
        "holds .* and 990 more, needs",
    ),
    "fewer arrays": (rezip(quality=np.zeros(3)), r"predictions\.npz: holds"),
    "wrong type": (
        rezip(quality=np.zeros(3), certainty=np.zeros(3), part=np.zeros(3), label=np.zeros(3)),
        "array 'quality' is of type float64 and shape",
    ),
}


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_told_with_the_remedy(tmp_path: Path, name: str) -> None:
    write_profile(small_profile(), tmp_path / "p")
    damage, sentence = DAMAGES[name]
    damage(tmp_path / "p")
    with pytest.raises(InvalidInput, match=sentence) as caught:
        read_profile(tmp_path / "p")
    assert str(caught.value).endswith("make the profile anew with `gearshift profile`")


def test_arrays_of_another_profile_do_not_match_the_hash(tmp_path: Path) -> None:
    profile = small_profile()
    write_profile(profile, tmp_path / "p")
    predictions = dataclasses.replace(profile.predictions, certainty=profile.predictions.certainty / 2)
    write_profile(dataclasses.replace(profile, predictions=predictions), tmp_path / "q")
    (tmp_path / "p/predictions.npz").write_bytes((tmp_path / "q/predictions.npz").read_bytes())
    with pytest.raises(InvalidInput, match="does not match the hash"):
        read_profile(tmp_path / "p")


@settings(deadline=None)
@given(st.sampled_from(["profile.json", "predictions.npz"]), st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_byte_is_refused_or_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, name: str, position: int, change: int
) -> None:
    folder = tmp_path_factory.mktemp("bytes") / "p"
    write_profile(small_profile(), folder)
    data = bytearray((folder / name).read_bytes())
    data[position % len(data)] ^= change
    (folder / name).write_bytes(data)
    try:
        read = read_profile(folder)
    except InvalidInput:
        return
    assert same(read, small_profile())


def test_arrays_can_be_read_by_numpy_alone(tmp_path: Path) -> None:
    write_profile(small_profile(), tmp_path / "p")
    data = (tmp_path / "p/predictions.npz").read_bytes()
    assert zipfile.ZipFile(io.BytesIO(data)).testzip() is None
    with np.load(tmp_path / "p/predictions.npz", allow_pickle=False) as arrays:
        assert arrays["label"].tolist() == ["cat", "dog", "cat"]


def test_performance_models_are_stored_and_a_profile_without_them_keeps_its_hash(tmp_path: Path) -> None:
    bare = write_profile(small_profile(), tmp_path / "bare")
    assert b"performance" not in (tmp_path / "bare" / "profile.json").read_bytes()
    fitted = PerformanceModel(
        model="small", form="formula", batch_sizes=(1, 2, 4), cores=(1, 2), coefficients_s=(0.1, 0.2, 0.3, 0.4),
        held_out_error=0.01, held_out_worst=0.02, held_out_points=2,
    )  # fmt: skip
    written = write_profile(dataclasses.replace(small_profile(), performance=(fitted,)), tmp_path / "fitted")
    assert written.sha256 != bare.sha256
    assert read_profile(tmp_path / "fitted").performance_model("small", device_kind="cpu") == fitted
    with pytest.raises(InvalidInput, match="profile it with `--cores"):
        bare.performance_model("small", device_kind="cpu")


def test_a_profile_of_language_models_is_named_as_such(tmp_path: Path) -> None:
    write_language_profile(tmp_path / "profile", language_profile())
    with pytest.raises(InvalidInput, match="it holds a profile of language models, and one of other models is needed"):
        read_profile(tmp_path / "profile")
