from pathlib import Path

import pytest

from gearshift.errors import InvalidInput
from gearshift.models.config import ProfileSettings, project_file, read_project

PROJECT = """\
operator = "pets"
samples = "samples.py:load"
[models.small]
load = "models.py:small"
[models.large]
load = "models.py:large"
memory_mib = 12.5
"""


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "gearshift.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_project_is_read_with_its_defaults(tmp_path: Path) -> None:
    project = read_project(write(tmp_path, PROJECT))
    assert list(project.models) == ["small", "large"]
    assert project.models["large"].memory_mib == 12.5
    assert (project.certainty, project.profile) == ("top_two_difference", ProfileSettings())


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_left_out(tmp_path: Path, encoding: str) -> None:
    assert read_project(write(tmp_path, PROJECT.encode(encoding))).operator == "pets"


@pytest.mark.parametrize(("load", "is_onnx_file"), [("models.py:large", False), ("folder/large.onnx", True)])
def test_a_model_is_a_loader_or_an_onnx_file(tmp_path: Path, load: str, is_onnx_file: bool) -> None:
    project = read_project(write(tmp_path, PROJECT.replace("models.py:large", load)))
    assert project.models["large"].is_onnx_file == is_onnx_file


@pytest.mark.parametrize("kind", ["cpu", "cpu-old", "cuda", "cuda-x"])
def test_kinds_of_devices_that_can_be_measured(tmp_path: Path, kind: str) -> None:
    project = read_project(write(tmp_path, f'{PROJECT}[profile]\ndevice_kind = "{kind}"\n'))
    assert project.profile.device_kind == kind


def test_a_folder_stands_for_the_project_in_it(tmp_path: Path) -> None:
    assert project_file(tmp_path) == tmp_path / "gearshift.toml"
    assert project_file(tmp_path / "other.toml") == tmp_path / "other.toml"


def test_how_to_measure_can_be_set(tmp_path: Path) -> None:
    project = read_project(write(tmp_path, PROJECT + "[profile]\nbatch_sizes = [1, 3]\nrepeats = 5\nlongest_s = 1.5\n"))
    assert project.profile == ProfileSettings(batch_sizes=(1, 3), repeats=5, longest_s=1.5)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('operator = "pets"\n', "", "required field `operator`"),
        ('operator = "pets"', 'operator = "my pets"', "operator is 'my pets'; use up to 64 letters"),
        ('operator = "pets"', 'operator = ""', "operator is ''"),
        ('operator = "pets"', "operator = 3", r"Expected `str`, got `int` - at `\$.operator`"),
        ('operator = "pets"', 'operator = "pets"\ncolour = "red"', "unknown field `colour`"),
        ("memory_mib = 12.5", "memory_mb = 12.5", "unknown field `memory_mb`"),
        ("memory_mib = 12.5", "memory_mib = 0", "memory_mib is 0.0, needs more than 0"),
        ("models.py:large", "models.large", "load is 'models.large'; write it as file.py:function or file.onnx"),
        ("models.py:large", "large.pkl", "load is 'large.pkl'; write it as file.py:function or file.onnx"),
        ("memory_mib = 12.5", "softmax = 1", r"Expected `bool`, got `int` - at `\$.models\[...\].softmax`"),
        ("samples.py:load", "samples.py", "samples is 'samples.py'; write it as file.py:function"),
        ("samples.py:load", "samples.py:load()", r"samples is 'samples.py:load\(\)'"),
        ("[models.small]", "[models.small", "gearshift.toml: "),
    ],
)
def test_a_wrong_project_names_file_and_field(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = write(tmp_path, PROJECT.replace(old, new))
    with pytest.raises(InvalidInput, match=told) as caught:
        read_project(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("batch_sizes = []", r"batch_sizes is \[\], needs numbers from 1 to 65536"),
        ("batch_sizes = [0]", r"batch_sizes is \[0\]"),
        ("batch_sizes = [1.5]", "Expected `int`, got `float`"),
        ("repeats = 2", "repeats is 2, needs 3 to 10000"),
        ("longest_s = 0.0", "longest_s is 0.0, needs a positive number"),
        ("longest_s = nan", "longest_s is nan, needs a positive number"),
        ('device_kind = "gpu"', "device_kind is 'gpu'; use cpu or cuda, or a name that begins with cpu- or cuda-"),
        ('device_kind = "cudax"', "device_kind is 'cudax'"),
    ],
)
def test_a_wrong_measurement_setting_is_named(tmp_path: Path, setting: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read_project(write(tmp_path, f"{PROJECT}[profile]\n{setting}\n"))


def test_a_project_needs_a_model(tmp_path: Path) -> None:
    text = 'operator = "pets"\nsamples = "samples.py:load"\n[models]\n'
    with pytest.raises(InvalidInput, match=r"there are no models; add a \[models.NAME\] section"):
        read_project(write(tmp_path, text))


def test_two_outputs_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="two outputs have the same name here"):
        read_project(write(tmp_path, PROJECT + 'outputs = {a = "scores", b = "scores"}\n'))


def test_a_user_certainty_is_a_reference(tmp_path: Path) -> None:
    assert read_project(write(tmp_path, f'certainty = "c.py:sure"\n{PROJECT}')).certainty == "c.py:sure"
    with pytest.raises(InvalidInput, match="certainty is 'c:sure'"):
        read_project(write(tmp_path, f'certainty = "c:sure"\n{PROJECT}'))


@pytest.mark.parametrize("text", [b"", b" \n", b'operator = "\xff"'])
def test_an_empty_or_garbled_project_names_the_file(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"gearshift\.toml(, line 1)?: "):
        read_project(write(tmp_path, text))


def test_a_missing_project_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no such file; make one with `gearshift init`"):
        read_project(tmp_path / "gearshift.toml")
