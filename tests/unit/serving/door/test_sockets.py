"""Sockets of a server at a host of two addresses, where others hold ports."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from gearshift.errors import InvalidInput
from gearshift.serving.door.sockets import TRIES, bound_sockets

FIRST, SECOND = "127.0.0.1", "127.0.0.2"
Socket = socket.socket


@pytest.fixture(autouse=True)
def two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (place, 0)) for place in (FIRST, SECOND)]
    monkeypatch.setattr("socket.getaddrinfo", lambda *arguments, **more: found)


@pytest.fixture
def contend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], list[int]]]:
    """Has others take a port of the second address just before it is bound, so often; answers which, as they go."""
    with ExitStack() as stack:

        def contend(times: int) -> list[int]:
            taken: list[int] = []

            class Contested(Socket):
                def bind(self, address: tuple[str, int]) -> None:
                    if address[0] == SECOND and len(taken) < times:
                        other = stack.enter_context(Socket())
                        other.bind(address)
                        other.listen()
                        taken.append(address[1])
                    super().bind(address)

            monkeypatch.setattr("socket.socket", Contested)
            return taken

        yield contend


@pytest.mark.parametrize("shared", [False, True])
def test_any_port_is_one_that_is_free_at_all_addresses(contend: Callable[[int], list[int]], shared: bool) -> None:
    taken = contend(TRIES - 1)
    with bound_sockets("both", 0, shared=shared) as socks:
        (port,) = {sock.getsockname()[1] for sock in socks}
        assert [sock.getsockname()[0] for sock in socks] == [FIRST, SECOND]
        assert port not in taken
    assert len(taken) == TRIES - 1
    for port in taken:  # nothing of what was given up is held
        with Socket() as sock:
            sock.bind((FIRST, port))


def test_where_no_port_is_free_at_all_addresses_no_other_is_to_be_chosen(contend: Callable[[int], list[int]]) -> None:
    contend(1000)
    said = rf"of both \({SECOND}\) is in use; end what holds ports here: of {TRIES} tried none was free"
    with pytest.raises(InvalidInput, match=said), bound_sockets("both", 0):
        pass


def test_a_port_that_is_held_at_one_address_is_told_with_that_address() -> None:
    with Socket() as other:
        other.bind((SECOND, 0))
        other.listen()
        port = other.getsockname()[1]
        said = rf"port {port} of both \({SECOND}\) is in use; choose another with --port"
        with pytest.raises(InvalidInput, match=said), bound_sockets("both", port):
            pass


def test_a_host_that_this_machine_does_not_have_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *arguments, **more: found)
    said = r"port 0 of 192.0.2.1 cannot be used \(Cannot assign requested address\); choose another with --host"
    with pytest.raises(InvalidInput, match=said), bound_sockets("192.0.2.1", 0):
        pass
