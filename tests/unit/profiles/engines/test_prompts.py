import json
import re
from pathlib import Path
from typing import Any

import pytest

from gearshift.errors import InvalidInput
from gearshift.profiles.engines.prompts import read_prompts

USER = [{"role": "user", "content": "hi"}]


def written(folder: Path, *rows: Any) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def test_chats_and_texts_are_read_with_what_is_asked_of_the_endpoint(tmp_path: Path) -> None:
    chat = {"id": 1, "messages": USER, "max_tokens": 5, "body": {"tools": []}}
    one, other = read_prompts(written(tmp_path, chat, "", {"id": "b", "prompt": "hi"}))
    assert one.asked == {"tools": [], "messages": tuple(USER)}
    assert other.asked == {"prompt": "hi"}
    assert (one.max_tokens, other.reference) == (5, None)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"id": 2, "messages": USER, "max_tokens": 0}, "max_tokens of prompt 2 is 0, needs 1 to 1048576"),
        ({"id": 2, "messages": USER, "max_tokens": 1 << 40}, "max_tokens of prompt 2 is 1099511627776"),
        ({"id": 2, "messages": USER, "max_tokens": "many"}, "Expected `int | null`, got `str`"),
        ({"id": 2}, "prompt 2 has neither messages nor prompt; give one of them"),
        ({"id": 2, "messages": USER, "prompt": "hi"}, "prompt 2 has both messages and prompt"),
        ({"id": 2, "messages": [{"content": "hi"}]}, "a message of prompt 2 has no role"),
        ({"messages": USER}, "missing required field `id`"),
        ("{cut off", "JSON is malformed"),
    ],
)
def test_a_bad_prompt_is_a_sentence_that_names_its_line(row: Any, sentence: str, tmp_path: Path) -> None:
    path = written(tmp_path, {"id": 1, "prompt": "hi"}, row)
    with pytest.raises(InvalidInput, match=re.escape(sentence)) as caught:
        read_prompts(path)
    assert f"{path}, line 2" in str(caught.value)


def test_one_prompt_and_one_id_for_two_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds 1 prompts, needs at least two"):
        read_prompts(written(tmp_path, {"id": 1, "prompt": "hi"}))
    with pytest.raises(InvalidInput, match="two prompts have the id '1'; give each prompt an id of its own"):
        read_prompts(written(tmp_path, {"id": 1, "prompt": "hi"}, {"id": "1", "prompt": "ho"}))


def test_a_mark_of_the_byte_order_is_no_part_of_the_first_prompt(tmp_path: Path) -> None:
    path = written(tmp_path, {"id": 1, "messages": USER}, {"id": 2, "messages": USER})
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert [prompt.id for prompt in read_prompts(path)] == [1, 2]
