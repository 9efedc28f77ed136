"""Sockets found again by their far end, as the library would name it."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gearshift.serving.grpc.sockets import GrpcSockets

LONGEST_S = 20.0
Pair = tuple[socket.socket, socket.socket, GrpcSockets]


def connected(host: str, far: str, stack: ExitStack) -> Pair:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = stack.enter_context(socket.create_server((host, 0), family=family, dualstack_ipv6=host == "::"))
    client = stack.enter_context(socket.create_connection((far, listener.getsockname()[1]), LONGEST_S))
    listener.settimeout(LONGEST_S)
    server = stack.enter_context(listener.accept()[0])
    server.settimeout(LONGEST_S)
    sockets = GrpcSockets()
    sockets.port = listener.getsockname()[1]
    return client, server, sockets


@pytest.fixture(params=[("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")])
def pair(request) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield connected(*request.param, stack)


def name_of(client: socket.socket) -> str:
    host, port = client.getsockname()[:2]
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def test_what_a_connection_has_received_is_known_once_files_were_looked_through(pair):
    client, server, sockets = pair
    peer = name_of(client)
    client.sendall(b"a" * 1000)
    assert len(server.recv(400)) == 400
    assert not sockets.knows(peer)
    assert sockets.received_bytes(peer) is None
    sockets.look_through()
    assert sockets.knows(peer)
    assert sockets.received_bytes(peer) == 1000
    client.sendall(b"a" * 50)
    assert len(server.recv(650, socket.MSG_WAITALL)) == 650
    assert sockets.received_bytes(peer) == 1050


def test_looking_leaves_no_file_open(pair):
    client, _, sockets = pair
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        sockets.look_through()
        sockets.received_bytes(name_of(client))
    assert os.listdir("/proc/self/fd") == before


def test_a_connection_is_cut_for_all_who_hold_it(pair):
    client, server, sockets = pair
    sockets.cut(name_of(client))
    assert client.recv(1) == b""
    assert server.recv(1) == b""


def test_another_connection_under_the_same_number_is_not_taken_for_the_one_before(pair):
    client, server, sockets = pair
    peer = name_of(client)
    sockets.look_through()
    number = server.fileno()
    with ExitStack() as stack:
        _, other, _ = connected("127.0.0.1", "127.0.0.1", stack)
        os.dup2(other.fileno(), number)
        assert sockets.received_bytes(peer) is None
        sockets.cut(peer)
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(1)


@pytest.mark.parametrize("peer", ["", "unix:", "unix:/a/b", "ipv4:127.0.0.1", "ipv6:%5B::1%5D:1"])
def test_an_end_that_is_nobodys_is_not_known(peer):
    sockets = GrpcSockets()
    sockets.look_through()
    assert sockets.received_bytes(peer) is None
    sockets.cut(peer)
