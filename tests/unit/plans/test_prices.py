from pathlib import Path

import pytest

from gearshift.errors import InvalidInput
from gearshift.hardware import identical_devices
from gearshift.plans.hardware_file import read_hardware
from gearshift.plans.prices import PER_HOUR, price_of, price_per_hour, priced


def test_a_price_is_a_number_or_a_kind_in_the_list() -> None:
    assert price_of(0.5) == price_of("0.5") == 0.5
    assert price_of("g5.xlarge") == PER_HOUR["g5.xlarge"]


@pytest.mark.parametrize("price", ["huge.xlarge", "", "-1", "nan", "inf", -0.5])
def test_another_price_is_refused_with_the_kinds_and_their_date(price: str | float) -> None:
    with pytest.raises(InvalidInput, match=r"is no price per hour; give a number from 0, or one of .*prices of 20"):
        price_of(price)


def test_a_price_is_that_of_each_device() -> None:
    assert price_per_hour(priced(identical_devices(3), 0.25)) == 0.75
    assert price_per_hour(identical_devices(3)) is None
    assert priced(identical_devices(3), None) == identical_devices(3)


def test_a_file_of_devices_may_name_kinds(tmp_path: Path) -> None:
    (tmp_path / "hw.toml").write_text('[[devices]]\nid = "a"\nprice_per_hour = "m7g.large"\n')
    assert price_per_hour(read_hardware(tmp_path / "hw.toml")) == PER_HOUR["m7g.large"]
    (tmp_path / "hw.toml").write_text('[[devices]]\nid = "a"\nprice_per_hour = "cheap"\n')
    with pytest.raises(InvalidInput, match=r"hw.toml: 'cheap' is no price per hour"):
        read_hardware(tmp_path / "hw.toml")
