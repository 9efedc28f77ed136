from datetime import date
from pathlib import Path

import pytest

from gearshift.errors import InvalidInput
from gearshift.hardware import identical_devices
from gearshift.plans.hardware_file import read_hardware
from gearshift.plans.prices import AS_OF, LIST_PRICES, PER_HOUR, price_of, price_per_hour, priced


def test_a_price_is_a_number_or_a_kind_in_the_list() -> None:
    assert price_of(0.5) == price_of("0.5") == 0.5
    assert price_of("g5.xlarge") == PER_HOUR["g5.xlarge"]


@pytest.mark.parametrize("price", ["huge.xlarge", "", "-1", "nan", "inf", -0.5])
def test_another_price_is_refused_with_the_kinds_and_their_date(price: str | float) -> None:
    with pytest.raises(InvalidInput, match=r"is no price per hour; give a number from 0, or one of .*prices of 20"):
        price_of(price)


def test_every_listed_price_says_where_when_and_by_whom() -> None:
    for kind, price in LIST_PRICES.items():
        assert 0.01 < price.per_hour < 10, kind
        assert price.region
        assert price.source
        assert date(2026, 1, 1) <= date.fromisoformat(price.date) <= date(2026, 12, 31)
    assert AS_OF == "2026-06-17 to 2026-11-09"


def test_the_guide_has_the_list() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "plan.md").read_text()
    for kind, price in LIST_PRICES.items():
        row = next(line for line in guide.splitlines() if line.startswith(f"| `{kind}`"))
        assert [cell.strip() for cell in row.split("|")[2:-1]] == [
            f"{price.per_hour:.4f}",
            price.region,
            price.date,
            price.source,
        ]


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
