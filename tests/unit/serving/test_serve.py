import socket

import click
import pytest

from gearshift.cli.main import main_group
from gearshift.errors import InvalidInput
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.sockets import beside, bound_socket, is_loopback, server_context
from tests.certificates import ANOTHER_KEY, CERTIFICATE, KEY_WITH_PASSWORD, write_certificate


def test_a_server_listens_on_this_machine_alone_unless_told_otherwise():
    with bound_socket(ServerSettings().host, 0) as sock:
        assert is_loopback(sock)


def test_a_certificate_with_its_key_can_be_used(tmp_path):
    server_context(*write_certificate(tmp_path).values())


@pytest.mark.parametrize(
    ("key", "reason"),
    [(ANOTHER_KEY, "key values mismatch"), (KEY_WITH_PASSWORD, "cannot be used"), (CERTIFICATE, "cannot be used")],
)
def test_a_key_that_does_not_fit_the_certificate_is_refused(tmp_path, key, reason):
    with pytest.raises(InvalidInput, match=reason):
        server_context(*write_certificate(tmp_path, key).values())


def test_a_certificate_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="No such file"):
        server_context(str(tmp_path / "a.pem"), str(tmp_path / "b.pem"))


@pytest.mark.parametrize("one", ["tls_certificate", "tls_key"])
def test_certificate_and_key_come_together(one):
    with pytest.raises(InvalidInput, match="one is missing"):
        ServerSettings(**{one: "a.pem"})


@pytest.mark.parametrize(
    ("field", "choices"), [("log_level", "debug, info, warning, error"), ("log_format", "text, json")]
)
def test_logs_are_of_a_level_and_a_form_that_there_are(field, choices):
    with pytest.raises(InvalidInput, match=f"{field} is 'loud'; use one of {choices}"):
        ServerSettings(**{field: "loud"})


def test_the_command_line_has_a_flag_and_choices_for_them():
    command = main_group.get_command(None, "serve")
    given = ["plan.json", "--otel", "--log-level", "debug", "--log-format", "json"]
    with command.make_context("serve", given) as context:
        assert [context.params[name] for name in ("otel", "log_level", "log_format")] == [True, "debug", "json"]
    with pytest.raises(click.BadParameter, match="'loud' is not one of"):
        command.make_context("serve", ["plan.json", "--log-level", "loud"])


@pytest.mark.parametrize(
    ("field", "value"), [("longest_retry_s", -1), ("shortest_hang_s", 0), ("probe_s", 0), ("probe_s", float("nan"))]
)
def test_times_for_failing_workers_have_bounds(field, value):
    with pytest.raises(InvalidInput, match=f"{field} is"):
        ServerSettings(**{field: value})


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("port", 8000.5, "a whole number"),
        ("front_ends", True, "a whole number"),
        ("most_tensors", None, "a whole number"),
        ("drain_s", True, "a number"),
        ("drain_s", "1", "a number"),
    ],
)
def test_numbers_are_of_the_kind_that_a_setting_has(field, value, kind):
    with pytest.raises(InvalidInput, match=f"{field} is {value!r}, needs {kind}$"):
        ServerSettings(**{field: value})


@pytest.mark.parametrize("seed", [-1, 1 << 63])
def test_a_seed_is_one_that_generators_take(seed):
    with pytest.raises(InvalidInput, match=f"audit_seed is {seed}, needs 0 to {(1 << 63) - 1}"):
        ServerSettings(audit_seed=seed)


@pytest.mark.parametrize(("host", "loopback"), [("127.0.0.1", True), ("127.0.0.2", True), ("0.0.0.0", False)])
def test_only_this_machine_reaches_a_loopback_address(host, loopback):
    with socket.socket() as sock:
        sock.bind((host, 0))
        assert is_loopback(sock) == loopback


@pytest.mark.parametrize("shared", [False, True])
def test_a_port_that_a_server_shares_among_its_own_is_in_use_for_others(shared):
    with bound_socket("127.0.0.1", 0, shared=True) as sock:
        port = sock.getsockname()[1]
        with beside(sock) as other:
            assert other.getsockname()[1] == port
            with (
                pytest.raises(InvalidInput, match=f"port {port} of 127.0.0.1 is in use"),
                bound_socket("127.0.0.1", port, shared=shared),
            ):
                pass


@pytest.mark.parametrize("count", [0, 65])
def test_front_ends_are_few(count):
    with pytest.raises(InvalidInput, match=f"front_ends is {count}, needs 1 to 64"):
        ServerSettings(front_ends=count)
