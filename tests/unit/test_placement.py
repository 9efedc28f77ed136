from typing import Any

import pytest

from gearshift.errors import InvalidInput
from gearshift.placement import Placement, Replica


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"id": ""}, "a replica's id is empty"),
        ({"device_ids": ()}, "replica 'r' is on no device, needs at least one"),
        ({"device_ids": ("d", "d")}, "replica 'r' names a device twice"),
        ({"cores": 0}, "replica 'r' has 0 cores, needs at least 1"),
        ({"tensor_parallel": 0}, "replica 'r' has tensor_parallel 0, needs >= 1"),
    ],
)
def test_a_replica_that_cannot_be_names_itself_and_the_value(fields: dict[str, Any], sentence: str) -> None:
    good: dict[str, Any] = {"id": "r", "model": "m", "device_ids": ("d",)}
    with pytest.raises(InvalidInput) as caught:
        Replica(**(good | fields))
    assert str(caught.value) == sentence


def test_a_placement_without_replicas_is_refused() -> None:
    with pytest.raises(InvalidInput, match="a placement has no replicas, needs at least one"):
        Placement(replicas=())


def test_two_replicas_of_one_id_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"replica ids are not unique: \['r', 'r'\]"):
        Placement(
            replicas=(Replica(id="r", model="m", device_ids=("d",)), Replica(id="r", model="n", device_ids=("d",)))
        )


def test_a_model_is_placed_on_a_device_at_most_once_even_by_replicas_that_span_several() -> None:
    with pytest.raises(InvalidInput, match="model 'm' is placed twice on device 'd1'"):
        Placement(
            replicas=(
                Replica(id="r", model="m", device_ids=("d0", "d1")),
                Replica(id="s", model="m", device_ids=("d1", "d2")),
            )
        )


def test_the_models_of_a_placement_are_sorted_and_named_once() -> None:
    replicas = [Replica(id=f"{m}{d}", model=m, device_ids=(d,)) for d in ("x", "y") for m in ("b", "a")]
    assert Placement(replicas=tuple(replicas)).models == ("a", "b")
