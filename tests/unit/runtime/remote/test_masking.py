"""Secrets in the words of endpoints."""

import base64
import json
from urllib.parse import quote

import pytest

from gearshift.runtime.remote.masking import Mask

KEY = 'sk-very/secret+key"0123'


IN_JSON = json.dumps(KEY)[1:-1]


@pytest.mark.parametrize("form", [KEY, IN_JSON, IN_JSON.replace("/", r"\/"), quote(KEY, safe="")])
def test_a_secret_is_hidden_in_each_form_that_it_may_have(form):
    assert Mask(KEY).text(f"bad: Bearer {form}, and {form} again") == "bad: Bearer ***, and *** again"


@pytest.mark.parametrize("coded", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("user", ["", "a", "ab", "abc", "Bearer "])
def test_a_secret_is_hidden_in_base64_wherever_it_begins(user, coded):
    said = coded(f"{user}{KEY} and more".encode()).decode()
    before, after = Mask(KEY).text(said).split("***")
    assert len(before) <= 4 * len(user) / 3 + 1  # the character that both share is left
    assert len(after) <= 4 * len(" and more") / 3 + 4


def test_a_text_without_a_secret_is_the_same_object():
    said = b"a text of some length"
    assert Mask(KEY, None)(said) is said
    assert not Mask(None)
    assert Mask(KEY)


def test_a_key_that_is_too_short_to_be_one_hides_nothing():
    assert Mask("none").text('{"tool_choice": "none"}') == '{"tool_choice": "none"}'


def test_a_query_is_hidden_however_short():
    assert Mask("none", query="?k=1").text("no such path /v1?k=1") == "no such path /v1***"


def test_json_stays_json():
    masked = Mask(KEY)(json.dumps({"a": KEY, "b": [f"x{KEY}y"]}).encode())
    assert json.loads(masked) == {"a": "***", "b": ["x***y"]}
