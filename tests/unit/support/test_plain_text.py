import json

from hypothesis import given
from hypothesis import strategies as st

from gearshift.support.plain_text import plain


def test_what_a_terminal_would_obey_is_an_escape() -> None:
    hostile = "a\x1b[31mb\x07\x9bc\u202ed\u2066e\u2028f\r\n\tg\x7f"
    assert plain(hostile) == "a\\u001b[31mb\\u0007\\u009bc\\u202ed\\u2066e\\u2028f\\r\\n\\tg\\u007f"
    assert plain("a\nb\x1b", keep="\n") == "a\nb\\u001b"


def test_words_of_all_languages_stay() -> None:
    assert (
        plain("na\u00efve \u65e5\u672c\u8a9e \u0627\u0644 \U0001f600")
        == "na\u00efve \u65e5\u672c\u8a9e \u0627\u0644 \U0001f600"
    )


@given(st.text())
def test_json_means_the_same(text: str) -> None:
    assert json.loads(plain(json.dumps(text, ensure_ascii=False))) == text
