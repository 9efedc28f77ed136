import pytest

from gearshift.cli.common.what_differs import sentences
from gearshift.plans.plan_diff import Change, PlanDiff

GIVEN = {"id": "a", "price_per_hour": 2.0}
NONE = {"id": "a"}


@pytest.mark.parametrize(
    ("a", "b", "told"), [(NONE, GIVEN, "none in a, 2.0 in b"), (GIVEN, NONE, "2.0 in a, none in b")]
)
def test_a_field_that_one_device_lacks_is_none_there(a: dict[str, object], b: dict[str, object], told: str) -> None:
    change = Change(what="a", a=a, b=b)
    found = PlanDiff(origin=(), objective=(), hardware=(change,), placement=(), gears=(), predictions=(None, None))
    assert list(sentences(found)) == [f"device a: price_per_hour {told}"]
