"""The connection to an endpoint: TLS and time."""

import socket
import threading
import time
from email.utils import formatdate
from typing import Any

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.models.remote_settings import RemoteSettings
from gearshift.runtime.remote.endpoint import Asked, Asking, Patience, Reply, pause_s
from tests.certificates import write_certificate
from tests.unit.runtime.remote.endpoints import Answer, as_json, endpoint, opened
from tests.unit.runtime.remote.test_chat import TEXTS, chat, judge, prompt_in


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path):
    with endpoint(judge, write_certificate(tmp_path)) as server:
        predicted = opened(chat(server.url)).run({"text": TEXTS})
    assert np.isnan(predicted.certainty).all()
    assert "CERTIFICATE_VERIFY_FAILED" in predicted.failure
    assert server.asked == []


def test_a_certificate_that_the_project_trusts_is_taken(tmp_path):
    certificate = write_certificate(tmp_path)
    with endpoint(judge, certificate) as server:
        predicted = opened(chat(server.url, ca_file=certificate["tls_certificate"].split("/")[-1]), tmp_path).run(
            {"text": TEXTS}
        )
    assert not np.isnan(predicted.certainty).any()


def test_certificates_that_cannot_be_read_name_the_field():
    with pytest.raises(InvalidInput, match=r"models.large.remote.ca_file: no certificates can be read from 'no.pem'"):
        opened(chat("https://127.0.0.1:1", ca_file="no.pem"))


def test_a_server_that_sends_its_answer_byte_by_byte_does_not_hold_a_batch_beyond_its_time():
    ended = threading.Event()

    def trickle(sock: socket.socket) -> None:
        with sock:
            try:
                sock.recv(4096)
                while not ended.wait(0.02):
                    sock.sendall(b"H")
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = threading.Thread(target=lambda: trickle(listening.accept()[0]))
        accepting.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        predicted = opened(chat(url, longest_s=0.3)).run({"text": TEXTS[:1]})
        ended.set()
        accepting.join(10)
    assert predicted.failure.endswith("did not answer within 0.3 s")


PATIENCE = Patience(most_attempts=4, longest_s=60.0)
BUSY = as_json({"error": "slow down"}, 429)


@pytest.mark.parametrize(
    ("attempts", "asked_s", "draw", "seconds"),
    [
        (1, None, 0.0, 0.25),
        (1, None, 1.0, 0.5),
        (2, None, 1.0, 1.0),
        (3, None, 1.0, 2.0),
        (1, 2.0, 0.0, 2.0),
        (1, 2.0, 1.0, 2.2),
        (1, 0.0, 1.0, 0.0),
        (4, None, 0.0, None),
        (4, 0.0, 0.0, None),
        (1, 59.0, 1.0, None),
        (1, 1e15, 0.0, None),
    ],
)
def test_pauses_double_unless_another_was_asked_for_and_end_with_patience(attempts, asked_s, draw, seconds):
    assert pause_s(attempts, asked_s, 0.0, PATIENCE, draw) == (None if seconds is None else pytest.approx(seconds))


def test_a_pause_that_was_asked_for_is_never_cut_short():
    assert pause_s(1, 10.0, 49.0, PATIENCE, 0.5) == pytest.approx(10.5)
    assert pause_s(1, 10.0, 50.1, PATIENCE, 0.5) is None


def test_pauses_have_a_longest():
    assert pause_s(90, None, 0.0, Patience(100, 1e6), 1.0) == 30.0


class Failing:
    """An endpoint whose first replies are these."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.asked: list[int] = []

    def ask(self, requests: list[Asked], within_s: float | None = None) -> list[Reply]:
        self.asked.append(len(requests))
        return [self.replies.pop(0) if self.replies else Reply(200) for _ in requests]

    def told(self, reply: Reply) -> str:
        return str(reply.status)


def asking(failing: Any, pauses: list[float], *, profiling: bool = True, **changed: Any) -> Asking:
    settings = RemoteSettings(url="http://x", protocol="v2", model="m", **changed)
    return Asking(failing, settings, profiling=profiling, pause=pauses.append)


def test_only_those_that_failed_are_sent_again_after_the_longest_pause_that_was_asked_for():
    busy = [Reply(429, {"retry-after": "1"}), Reply(503, {"retry-after": formatdate(time.time() + 9, usegmt=True)})]
    failing, pauses = Failing(Reply(200), *busy, Reply(400)), list[float]()
    replies = asking(failing, pauses).ask([Asked("GET", "/")] * 4)
    assert [reply.status for reply in replies] == [200, 200, 200, 400]
    assert failing.asked == [4, 2]
    assert len(pauses) == 1
    assert 7 < pauses[0] < 10


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 501])
def test_what_will_not_pass_is_sent_once(status):
    failing = Failing(Reply(status))
    assert asking(failing, []).ask([Asked("GET", "/")])[0].status == status
    assert failing.asked == [1]


def test_attempts_are_bounded_and_pauses_grow_the_same_way_each_time():
    pauses, again = list[float](), list[float]()
    for waited in (pauses, again):
        failing = Failing(*[Reply(500)] * 9)
        assert asking(failing, waited, most_attempts=5).ask([Asked("GET", "/")])[0].status == 500
        assert failing.asked == [1] * 5
    assert pauses == again
    assert all(0.25 * 2**i <= pause <= 0.5 * 2**i for i, pause in enumerate(pauses))


def test_while_serving_nothing_is_sent_again_unless_it_is_asked_for_and_then_within_the_time_of_a_batch():
    pauses = list[float]()
    for changed, asked in (
        ({}, 1),
        ({"most_attempts_served": 3}, 3),
        ({"most_attempts_served": 3, "longest_s": 0.1}, 1),
    ):
        failing = Failing(*[Reply(429)] * 9)
        asking(failing, pauses, profiling=False, **changed).ask([Asked("GET", "/")])
        assert len(failing.asked) == asked


def test_a_profile_gets_every_answer_of_an_endpoint_that_is_busy_for_a_while():
    refused = set[str]()

    def answer(path: str, body: bytes) -> Answer:
        if (text := prompt_in(body)) not in refused:
            refused.add(text)
            return BUSY[0], BUSY[1] | {"retry-after": "0"}, BUSY[2]
        return judge(path, body)

    with endpoint(answer) as server:
        model = opened(chat(server.url), profiling=True)
        predicted = model.run({"text": TEXTS})
        assert len(server.asked) == 6
    assert not np.isnan(predicted.certainty).any()
    assert 0 < model.model.waited_s < 20


def test_an_endpoint_that_was_never_there_is_not_waited_for():
    with endpoint(judge) as server:
        url = server.url
    predicted = opened(chat(url), profiling=True).run({"text": TEXTS})
    assert "gave no answer" in predicted.failure


def test_a_connection_that_is_cut_off_is_no_end_once_there_has_been_an_answer():
    asked = list[str]()

    def answer(path: str, body: bytes) -> Answer:
        asked.append(prompt_in(body))
        cut = "bad" in asked[-1] and asked.count(asked[-1]) == 1
        return (200, {"content-length": "4", "connection": "close"}, b"{}") if cut else judge(path, body)

    with endpoint(answer) as server:
        model = opened(chat(server.url, most_requests=1), profiling=True)
        predicted = model.run({"text": TEXTS})
    assert not np.isnan(predicted.certainty).any()
