import pytest
import torch

from gearshift.caches.building import sizing
from gearshift.caches.building.sizing import Worth, in_turns, worth_of
from gearshift.caches.network.learned_cache import smaller
from gearshift.caches.network.tracing import chain_of


@pytest.mark.parametrize(
    ("variant", "then"),
    [
        ("FC(1024)", "FC(512)"),
        ("FC(100)", "FC(64)"),
        ("FC(16)", "FC(16)"),
        ("Pool(8192,1024)", "Pool(4096,512)"),
        ("Pool(1024,128)", "Pool(512,128)"),
        ("Pool(512,128)", "Pool(512,128)"),
        ("Pool(2048)", "Pool(1024)"),
        ("Token(512)", "Token(256)"),
        ("Conv(3,1)", "Conv(3,1)"),
        ("mine", "mine"),
    ],
)
def test_variants_are_halved_but_not_below_what_small_models_begin_with(variant: str, then: str) -> None:
    assert smaller(variant) == then


def test_one_variant_of_each_block_is_trained_before_the_second_of_any_and_costly_ones_last() -> None:
    found = [Worth(0, "a", 1.0), Worth(0, "b", 2.0), Worth(1, "a", 5.0), Worth(1, "b", 4.0), Worth(2, "a", -1.0)]
    assert [(one.layer, one.variant) for one in in_turns(found)] == [
        (1, "a"), (0, "b"), (1, "b"), (0, "a"), (2, "a"),
    ]  # fmt: skip


def module() -> torch.nn.Module:
    torch.manual_seed(0)
    convolutions = (torch.nn.Conv2d(8, 8, 3, padding=1) for _ in range(4))
    return torch.nn.Sequential(*convolutions, torch.nn.Flatten(), torch.nn.Linear(8 * 64, 3))


def test_variants_that_are_named_are_ordered_by_where_they_stand() -> None:
    chain = chain_of(module().eval(), ["0", "1", "2"])
    found = worth_of(chain, torch.zeros(1, 8, 8, 8), ("FC(16)", "Pool(32,16)"), 3)
    assert {(one.layer, one.variant) for one in found} == {(k, v) for k in range(3) for v in ("FC(16)", "Pool(32,16)")}
    assert {one.layer for one in found[:3]} == {0, 1, 2}


def test_sizes_are_those_whose_lookups_take_little_of_the_models_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a model of a second lookups take as long as widths say, and convolutions pay where more of it is left."""
    chain = chain_of(module().eval(), ["0", "1", "2"])
    monkeypatch.setattr(sizing, "_segments", lambda chain, row: ([0.25] * 4, list(chain.hidden(row))))
    monkeypatch.setattr(sizing, "parameters_of", lambda module: 11_000_000)

    def took_s(self: object, variant: str, hidden: torch.Tensor, most_s: float) -> float:
        return 1e-4 * int(variant.split("(")[1].split(",", maxsplit=1)[0].rstrip(")")) if "Conv" not in variant else 0.3

    monkeypatch.setattr(sizing._Lookups, "took_s", took_s)
    found = worth_of(chain, torch.zeros(1, 8, 8, 8), None, 3)
    by_layer = [{one.variant for one in found if one.layer == layer} for layer in range(3)]
    assert by_layer[1] == {"FC(256)", "FC(64)", "Pool(512,128)"}
    assert by_layer[0] - by_layer[1] == {"Conv(3,1)", "Conv(5,2)"}
