import pytest

import gearshift
from gearshift.errors import InvalidInput
from tests.two_language_models import ALONE, language_plan


def test_a_plan_of_language_models_is_told_its_own_function() -> None:
    with pytest.raises(InvalidInput, match="call `explain_language`"):
        gearshift.explain(language_plan([ALONE]))
