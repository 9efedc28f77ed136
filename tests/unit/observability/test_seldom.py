import logging

from gearshift.observability.seldom import EVERY_S, Seldom


def test_of_many_warnings_one_is_logged_now_and_then_with_how_many_there_were(caplog):
    now_s = 0.0
    seldom = Seldom(logging.getLogger("gearshift.a"), lambda: now_s)
    for number in range(5):
        seldom.warning("client %d", number)
    now_s = EVERY_S
    seldom.warning("client %s", "100 %d")
    assert [record.getMessage() for record in caplog.records] == ["client 0", "client 100 %d (4 more like this before)"]
