import tomllib
from pathlib import Path

import pytest

from gearshift.errors import InvalidInput
from gearshift.support.extras import EXTRAS, load_extra
from gearshift.verbs.doctor import WORTH_HAVING, doctor

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
NOT_FOR_USERS = {"demo", "test", "test-long"}


def test_the_doctor_knows_every_extra_that_can_be_installed() -> None:
    offered = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    for extra in set(offered) - NOT_FOR_USERS:
        assert any(requirement.startswith(EXTRAS[extra]) for requirement in offered[extra])
        assert extra in WORTH_HAVING
    assert set(offered) - NOT_FOR_USERS <= set(doctor().extras)


def test_an_extra_that_is_there_is_loaded() -> None:
    assert load_extra("json", extra="onnx", where="here").dumps(1) == "1"


def test_an_extra_that_is_missing_says_how_to_install_it() -> None:
    with pytest.raises(
        InvalidInput, match=r"here: needs torch, .*; install it with `pip install 'gearshift\[torch\]'`"
    ):
        load_extra("nothing_of_this_name", extra="torch", where="here")
