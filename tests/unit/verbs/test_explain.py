import pytest

import gearshift
from gearshift.errors import InvalidInput
from tests.two_language_models import ALONE, language_plan


@pytest.mark.parametrize(("option", "value"), [("devices_too", True), ("joint", {"a": 1})])
def test_an_option_that_language_models_lack_is_refused_by_name(option: str, value: object) -> None:
    with pytest.raises(InvalidInput, match=f"{option} is given, which plans of language models do not have"):
        gearshift.explain(language_plan([ALONE]), **{option: value})
