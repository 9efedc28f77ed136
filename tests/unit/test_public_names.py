import gearshift


def test_completion_offers_the_public_names_alone() -> None:
    offered = [name for name in dir(gearshift) if not name.startswith("_")]
    assert offered == gearshift.__all__
