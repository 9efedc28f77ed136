"""Chat completions of a small real server."""

import json
import math
import re
import socket
import threading
from typing import Any

import numpy as np
import pytest

from gearshift.errors import ModelFailed
from gearshift.runtime.remote import endpoint as endpoint_module
from gearshift.runtime.remote.chat import peeled, probability, stripped
from tests.unit.runtime.remote.endpoints import Answer, as_json, endpoint, opened

TEXTS = np.array(["fine food", "bad food", "fine wine"], dtype=object)


def completion(text: str | None, probability: float = 0.75) -> Answer:
    tokens = [{"token": text or "", "logprob": math.log(probability)}, {"token": "<end>", "logprob": -9.0}]
    message = {"role": "assistant", "content": text}
    return as_json({"choices": [{"index": 0, "message": message, "logprobs": {"content": tokens}}]})


def prompt_in(body: bytes) -> str:
    return json.loads(body)["messages"][0]["content"]


def judge(path: str, body: bytes) -> Answer:
    return completion(" Good.\n" if "fine" in prompt_in(body) else "bad", 0.9 if "wine" in prompt_in(body) else 0.6)


def chat(url: str, **changed: Any) -> dict[str, Any]:
    settings = {"url": f"{url}/v1", "protocol": "openai", "model": "judge", "prompt": "Judge: {text}"}
    return settings | {"longest_s": 20.0} | changed


def test_each_sample_gets_the_answers_text_and_the_probability_of_its_tokens():
    with endpoint(judge) as server:
        predicted = opened(chat(server.url)).run({"text": TEXTS})
    assert predicted.outputs["label"].tolist() == ["Good.", "bad", "Good."]
    assert predicted.certainty == pytest.approx([0.6, 0.6, 0.9])


def test_the_certainty_is_that_of_the_tokens_that_spell_the_label():
    def answer(path: str, body: bytes) -> Answer:
        spelled = [("\n\n", 1.0), (" **", 0.5), ("go", 0.8), ("od", 0.9), ("**.", 0.3)]
        tokens = [{"token": token, "logprob": math.log(probability)} for token, probability in spelled]
        message = {"content": "\n\n **good**."}
        return as_json({"choices": [{"message": message, "logprobs": {"content": tokens}}]})

    with endpoint(answer) as server:
        predicted = opened(chat(server.url, classes=("good", "bad"))).run({"text": TEXTS[:1]})
    assert predicted.outputs["label"].tolist() == ["good"]
    assert predicted.certainty == pytest.approx([0.8 * 0.9])


def test_classes_are_found_whatever_their_case():
    with endpoint(judge) as server:
        predicted = opened(chat(server.url, classes=("good", "bad"))).run({"text": TEXTS})
    assert predicted.outputs["label"].tolist() == ["good", "bad", "good"]


def test_a_request_asks_for_log_probabilities_and_carries_the_key(monkeypatch):
    monkeypatch.setenv("THE_KEY", "sk-secret")
    with endpoint(judge) as server:
        opened(chat(server.url, api_key_env="THE_KEY", most_tokens=3)).run({"text": TEXTS[:1]})
        ((path, headers, body),) = server.asked
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer sk-secret"
    assert json.loads(body) == {
        "model": "judge",
        "messages": [{"role": "user", "content": "Judge: fine food"}],
        "max_tokens": 3,
        "temperature": 0,
        "logprobs": True,
    }


def test_what_is_sent_can_be_changed(monkeypatch):
    monkeypatch.setenv("THE_KEY", "sk-secret")
    changed = {
        "api_key_env": "THE_KEY",
        "api_key_header": "api-key",
        "headers": {"x-team": "blue"},
        "tokens_field": "max_completion_tokens",
        "leave_out": ("temperature",),
        "body": {"reasoning_effort": "none", "seed": 1},
    }
    with endpoint(judge) as server:
        settings = chat(server.url) | changed | {"url": f"{server.url}/v1/?api-version=2026-01-01"}
        opened(settings).run({"text": TEXTS[:1]})
        ((path, headers, body),) = server.asked
    assert path == "/v1/chat/completions?api-version=2026-01-01"
    assert (headers["api-key"], headers["x-team"]) == ("sk-secret", "blue")
    assert "Authorization" not in headers
    sent = json.loads(body)
    assert {name: sent.get(name) for name in ("max_completion_tokens", "max_tokens", "temperature")} == {
        "max_completion_tokens": 16,
        "max_tokens": None,
        "temperature": None,
    }
    assert (sent["reasoning_effort"], sent["seed"]) == ("none", 1)


def test_what_follows_the_path_of_a_url_is_not_told():
    with endpoint(lambda path, body: as_json({"error": f"no such path {path}"}, 404)) as server:
        predicted = opened(chat(server.url) | {"url": f"{server.url}/v1?key=secret"}).run({"text": TEXTS[:1]})
        assert server.asked[0][0].endswith("?key=secret")
    assert "no such path /v1/chat/completions***" in predicted.failure
    assert "secret" not in predicted.failure


def test_an_endpoint_that_takes_the_new_name_of_a_field_alone_is_asked_by_that_from_then_on():
    def answer(path: str, body: bytes) -> Answer:
        if "max_tokens" in json.loads(body):
            return as_json({"error": {"message": "max_tokens is not taken, max_completion_tokens is"}}, 400)
        return judge(path, body)

    with endpoint(answer) as server:
        model = opened(chat(server.url))
        assert not np.isnan(model.run({"text": TEXTS}).certainty).any()
        assert len(server.asked) == 6
        assert not np.isnan(model.run({"text": TEXTS}).certainty).any()
        assert len(server.asked) == 9


def test_a_request_that_stays_refused_for_that_field_is_sent_twice_and_no_more():
    refusal = as_json({"error": {"message": "max_completion_tokens is too large"}}, 400)
    with endpoint(lambda path, body: refusal) as server:
        predicted = opened(chat(server.url)).run({"text": TEXTS[:1]})
        assert len(server.asked) == 2
    assert "max_completion_tokens is too large" in predicted.failure


def test_numbers_and_several_inputs_stand_in_a_prompt_as_text():
    with endpoint(judge) as server:
        model = opened(chat(server.url, prompt="{{{x}}} of {text}, {text}"))
        model.run({"x": np.array([[1.5, 2.0]]), "text": np.array([b"{a} wine"], dtype=object)})
        assert prompt_in(server.asked[0][2]) == "{1.5, 2.0} of {a} wine, {a} wine"


def test_at_most_so_many_requests_are_open_at_a_time():
    both = threading.Barrier(2)
    open_now, most, lock = 0, 0, threading.Lock()

    def answer(path: str, body: bytes) -> Answer:
        nonlocal open_now, most
        with lock:
            open_now += 1
            most = max(most, open_now)
        both.wait(10)
        with lock:
            open_now -= 1
        return completion("a")

    with endpoint(answer) as server:
        predicted = opened(chat(server.url, most_requests=2)).run({"text": np.array(["t"] * 6, dtype=object)})
    assert predicted.outputs["label"].tolist() == ["a"] * 6
    assert most == 2


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (as_json({"error": {"message": "slow down"}}, 429), "answered with status 429: .*slow down"),
        ((429, {"retry-after": "3600"}, b"slow down"), "status 429 and asks to wait 3600 s: slow down"),
        (as_json({"error": "key sk-secret is wrong"}, 401), r"status 401: .*key \*\*\* is wrong"),
        (as_json({"error": " " * 1175 + "key sk-secret is wrong"}, 401), r"status 401: .*key \*\*\* is"),
        (completion("your key is sk-secret"), "answered with none of the classes"),
        ((302, {"location": "/elsewhere"}, b""), "status 302, and redirects are not followed"),
        (as_json({"choices": []}), "without text or without the log-probabilities"),
        (as_json({"choices": [{"message": {"content": "good"}}]}), "without the log-probabilities"),
        (completion(None), "without text"),
        (completion("perhaps"), "answered with none of the classes"),
        (as_json(["nothing"]), "no chat completion"),
        ((200, {}, b"\xff"), "no chat completion"),
        ((200, {}, b"x" * 5000), "more than 4000 bytes"),
        ((200, {"content-length": "4", "connection": "close"}, b"{}"), "gave no answer"),
    ],
)
def test_only_the_sample_without_a_usable_answer_fails_and_says_why(monkeypatch, answer, told):
    monkeypatch.setenv("THE_KEY", "sk-secret")
    remote = {"classes": ("good", "bad"), "largest_answer_bytes": 4000, "api_key_env": "THE_KEY"}
    with endpoint(lambda path, body: answer if "bad" in prompt_in(body) else judge(path, body)) as server:
        predicted = opened(chat(server.url, **remote)).run({"text": TEXTS})
        assert len(server.asked) == 3
    assert np.isnan(predicted.certainty).tolist() == [False, True, False]
    assert predicted.outputs["label"].tolist()[::2] == ["good", "good"]
    assert re.search(told, predicted.failure)
    assert "sk-secret" not in predicted.failure


@pytest.mark.parametrize(
    ("answer", "unusable"),
    [
        (completion(None), True),
        (completion(""), True),
        (completion("perhaps"), True),
        (as_json({"choices": []}), True),
        (as_json({"choices": [{"message": {"content": "good"}}]}), True),
        (as_json({"error": "filtered"}, 400), True),
        ((200, {}, b"x" * 5000), True),
        (as_json({"error": "slow down"}, 429), False),
        (as_json({"error": "no such model"}, 404), False),
        ((200, {"content-length": "4", "connection": "close"}, b"{}"), False),
    ],
)
def test_an_answer_that_does_not_count_is_told_apart_from_none(answer, unusable):
    remote = {"classes": ("good", "bad"), "largest_answer_bytes": 4000}
    with endpoint(lambda path, body: answer if "bad" in prompt_in(body) else judge(path, body)) as server:
        predicted = opened(chat(server.url, **remote)).run({"text": TEXTS})
    assert np.isnan(predicted.certainty).tolist() == [False, True, False]
    assert (predicted.unusable is not None and predicted.unusable.tolist() == [False, True, False]) == unusable


def test_what_is_not_there_in_time_fails_and_what_is_counts(monkeypatch):
    ending, waits = threading.Event(), endpoint_module.wait

    def answer(path: str, body: bytes) -> Answer:
        if "bad" in prompt_in(body):
            ending.wait(30)
        return completion("a")

    def time_is_up(futures: Any, timeout: float) -> Any:
        """When the others are there."""
        return waits([futures[0], futures[2]], timeout=timeout)

    with endpoint(answer) as server:
        model = opened(chat(server.url))
        with monkeypatch.context() as patched:
            patched.setattr(endpoint_module, "wait", time_is_up)
            predicted = model.run({"text": TEXTS})
        assert np.isnan(predicted.certainty).tolist() == [False, True, False]
        assert predicted.failure.endswith("did not answer within 20 s")
        ending.set()
        assert not np.isnan(model.run({"text": TEXTS}).certainty).any()


def test_a_server_that_hangs_is_given_up():
    ending = threading.Event()

    def answer(path: str, body: bytes) -> Answer:
        ending.wait(30)
        return completion("a")

    with endpoint(answer) as server:
        predicted = opened(chat(server.url, longest_s=0.2)).run({"text": TEXTS})
        ending.set()
    assert np.isnan(predicted.certainty).all()
    assert predicted.failure.endswith("did not answer within 0.2 s")


def test_a_server_that_is_not_there_fails_every_sample():
    with socket.socket() as unused:  # held, so that nobody else listens there
        unused.bind(("127.0.0.1", 0))
        predicted = opened(chat(f"http://127.0.0.1:{unused.getsockname()[1]}")).run({"text": TEXTS})
    assert np.isnan(predicted.certainty).all()
    assert "gave no answer (ConnectionRefusedError" in predicted.failure


def test_a_prompt_with_an_input_that_is_not_there_is_told():
    with endpoint(judge) as server, pytest.raises(ModelFailed, match=r"prompt with \{text\}, but the inputs are x"):
        opened(chat(server.url)).run({"x": TEXTS})


def test_connections_are_kept():
    ports = []

    def answer(path: str, body: bytes) -> Answer:
        return completion("a")

    with endpoint(answer) as server:
        accept = server.get_request

        def counted() -> Any:
            sock, address = accept()
            ports.append(address)
            return sock, address

        server.get_request = counted
        model = opened(chat(server.url, most_requests=1))
        for _ in range(5):
            model.run({"text": TEXTS})
        assert len(server.asked) == 15
    assert len(ports) == 1


GOOD = pytest.approx(0.25)
"""The probability of `good` in each of these answers; all other tokens have probability 0.9."""


def tokens(*spelled: str | bytes) -> list[tuple[bytes, float]]:
    """`go` and `od` have probability 0.5, `good` 0.25, others 0.9."""
    of = {b"good": 0.25, b"go": 0.5, b"od": 0.5}
    made = [one if isinstance(one, bytes) else one.encode() for one in spelled]
    return [
        (one, math.log(of.get(one.decode(errors="ignore").strip(' \n"*.\u2581\u0120').encode(), 0.9))) for one in made
    ]


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("good", ["good"]),
        (" good", [" good"]),
        ("good", [" good"]),  # the server has cut the blank
        ("\n\ngood", ["\n\n", "good"]),
        ("good", ["\n", "\n", " ", "good"]),
        ("good", ["go", "od"]),
        ("\n good.", ["\n", " go", "od", "."]),
        ('"good"', ['"', "good", '"']),
        ('"good"', ['"go', 'od"']),
        ("**good**", ["**", "good", "**"]),
        ("good", ["good", "<|end|>"]),
        ("good", ["\u2581good"]),
        ("\ngood", ["\u010a", "\u0120go", "od"]),
        ("good", ["I think, it is no good one: ", "good"]),  # tokens of a thought that is not shown
        ("good \n", ["good", " \n"]),
    ],
)
def test_only_tokens_that_spell_the_label_count(text, spelled):
    assert probability(text, peeled(text), tokens(*spelled)) == GOOD


def test_a_class_of_several_words_has_the_product_of_its_tokens():
    spelled = [(b"\n", -1.0), (b"very", -0.1), (b" ", -0.2), (b"bad", -0.3), (b".", -2.0)]
    assert probability("\nvery bad.", peeled("\nvery bad."), spelled) == pytest.approx(math.exp(-0.6))


def test_a_token_may_be_a_part_of_a_character():
    spelled = [(b" ", -5.0), (b"sch\xc3", -0.1), (b"\xb6n", -0.2), (b"!", -5.0)]
    assert probability(" sch\u00f6n!", peeled(" sch\u00f6n!"), spelled) == pytest.approx(math.exp(-0.3))


def test_a_short_label_is_not_found_within_the_tokens_of_a_server():
    spelled = [(b"a", -0.5), (b"<|im_start|>", -3.0)]
    assert probability("a", (0, 1), spelled) == pytest.approx(math.exp(-0.5))


def test_tokens_that_do_not_spell_the_answer_count_all():
    assert probability("good", (0, 4), [(b"x", -1.0), (b"y", -2.0)]) == pytest.approx(math.exp(-3))


def test_a_probability_is_at_most_one():
    assert probability("a", (0, 1), [(b"a", 1e-6)]) == 1


@pytest.mark.parametrize(
    ("text", "without_blanks", "alone"),
    [
        ("good", "good", "good"),
        (' \n"Good." ', '"Good."', "Good"),
        ("\u201cgood\u201d!", "\u201cgood\u201d!", "good"),
        ("", "", ""),
        (" \n", "", ""),
        ("...", "...", ""),
    ],
)
def test_an_answer_is_taken_without_what_stands_around_it(text, without_blanks, alone):
    assert text[slice(*stripped(text))] == without_blanks
    assert text[slice(*peeled(text))] == alone
