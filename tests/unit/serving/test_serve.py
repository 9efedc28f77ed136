import socket

import pytest

from gearshift.errors import InvalidInput
from gearshift.serving.settings import ServerSettings
from gearshift.serving.sockets import is_loopback
from gearshift.serving.tls import require_certificate
from tests.certificates import ANOTHER_KEY, CERTIFICATE, KEY_WITH_PASSWORD, write_certificate


def test_a_certificate_with_its_key_can_be_used(tmp_path):
    require_certificate(*write_certificate(tmp_path).values())


@pytest.mark.parametrize(
    ("key", "reason"),
    [(ANOTHER_KEY, "key values mismatch"), (KEY_WITH_PASSWORD, "cannot be used"), (CERTIFICATE, "cannot be used")],
)
def test_a_key_that_does_not_fit_the_certificate_is_refused(tmp_path, key, reason):
    with pytest.raises(InvalidInput, match=reason):
        require_certificate(*write_certificate(tmp_path, key).values())


def test_a_certificate_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="No such file"):
        require_certificate(str(tmp_path / "a.pem"), str(tmp_path / "b.pem"))


@pytest.mark.parametrize("one", ["tls_certificate", "tls_key"])
def test_certificate_and_key_come_together(one):
    with pytest.raises(InvalidInput, match="one is missing"):
        ServerSettings(**{one: "a.pem"})


@pytest.mark.parametrize(("host", "loopback"), [("127.0.0.1", True), ("127.0.0.2", True), ("0.0.0.0", False)])
def test_only_this_machine_reaches_a_loopback_address(host, loopback):
    with socket.socket() as sock:
        sock.bind((host, 0))
        assert is_loopback(sock) == loopback
