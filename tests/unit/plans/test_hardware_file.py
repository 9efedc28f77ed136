from pathlib import Path

import pytest

from gearshift.errors import InvalidInput
from gearshift.hardware import Device, Hardware
from gearshift.plans.hardware_file import read_hardware

TWO = Hardware(devices=(Device(id="a", kind="gpu", memory_bytes=80, node="n1", price_per_hour=2.5), Device(id="b")))
TOML = (
    '[[devices]]\nid = "a"\nkind = "gpu"\nmemory_bytes = 80\nnode = "n1"\nprice_per_hour = 2.5\n[[devices]]\nid = "b"\n'
)
JSON = '{"devices": [{"id": "a", "kind": "gpu", "memory_bytes": 80, "node": "n1", "price_per_hour": 2.5}, {"id": "b"}]}'


@pytest.mark.parametrize(("name", "text"), [("two.toml", TOML), ("two.json", JSON)])
def test_devices_of_several_kinds_are_read_from_toml_and_json(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_hardware(tmp_path / name) == TWO


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (
            "x.json",
            '{"devices": [{"id": "a", "kindd": "gpu"}]}',
            r"unknown field `kindd` - at `\$.devices\[0\]`; list dev",
        ),
        ("x.json", '{"devices": []}', "hardware has no devices"),
        ("x.json", '{"devices"', "x.json: "),
        ("x.toml", "devices = ", "x.toml: "),
        ("x.toml", '[[devices]]\nid = "a"\n[[devices]]\nid = "a"\n', "device ids are not unique"),
    ],
)
def test_a_file_that_cannot_be_used_names_itself_and_the_field(tmp_path: Path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput, match=told):
        read_hardware(tmp_path / name)
