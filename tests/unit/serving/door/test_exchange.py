import logging

import pytest

from gearshift.serving.door.exchange import Exchange


def test_an_id_in_the_header_comes_before_one_in_the_body():
    exchange = Exchange("POST", "/", "from-the-header")
    exchange.offer("from-the-body")
    assert exchange.id == "from-the-header"


def test_an_id_in_the_body_is_taken_where_the_header_gives_none():
    exchange = Exchange("POST", "/")
    exchange.offer("from-the-body")
    assert exchange.id == "from-the-body"


@pytest.mark.parametrize("given", ["", "two words", "a\r\nset-cookie: x", "é", "x" * 129, "a\n"])
def test_an_id_that_a_header_or_a_line_cannot_carry_is_replaced(given):
    exchange = Exchange("POST", "/", given)
    exchange.offer(given)
    assert len(exchange.id) == 12
    assert int(exchange.id, 16) >= 0


def test_new_ids_differ():
    assert Exchange("GET").id != Exchange("GET").id


def test_what_a_client_is_told_of_a_fault_is_the_id_alone(caplog):
    told = Exchange("GET", "/", "7").fault(ValueError("a secret"))
    assert told == "an internal error; the server's log explains id 7"
    assert "fault, id 7" in caplog.text
    assert "ValueError: a secret" in caplog.text


def test_an_access_line_is_logged_at_level_debug_alone(caplog):
    with caplog.at_level(logging.INFO):
        Exchange("GET", "/livez", "7").end(200)
    assert caplog.text == ""
    with caplog.at_level(logging.DEBUG, "gearshift"):
        Exchange("GET", "/livez", "7").end(200)
    assert "GET '/livez': 200 after " in caplog.text
    assert caplog.text.endswith("ms, id 7\n")


def test_a_path_cannot_break_an_access_line(caplog):
    with caplog.at_level(logging.DEBUG, "gearshift"):
        Exchange("GET", "/a\nb" + 300 * "c").end(None)
    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert len(record.facts["path"]) == 200
    assert "the client is gone" in record.getMessage()
