"""The connection to an endpoint: TLS and time."""

import socket
import threading

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from tests.certificates import write_certificate
from tests.unit.runtime.remote.endpoints import endpoint, opened
from tests.unit.runtime.remote.test_chat import TEXTS, chat, judge


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
