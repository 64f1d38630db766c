"""The launcher's end of the control socket, spoken to by somebody who is confused, stopped or hostile."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from virtplane.compute.launcher.control import CONNECTIONS, LINE_BYTES, UNREAD_BYTES, ControlServer
from virtplane.compute.launcher.settings import parse


class Served:
    """A control server and its loop, turned by hand."""

    def __init__(self, folder: Path) -> None:
        options = ["--name", "vm", "--uid", "u", "--namespace", "ns", "--kubevirt-share-dir", str(folder)]
        self.settings = parse(options)
        self.selector = selectors.DefaultSelector()
        self.asked: list[Any] = []
        self.disconnects = 0
        self.server = ControlServer(self.settings, self.selector, self._handle, self._left)
        self.server.open()

    def _handle(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request)
        return {"done": request["command"]}

    def _left(self) -> None:
        self.disconnects += 1

    def turn(self) -> None:
        """Serve whatever is to be served now."""
        while ready := self.selector.select(0):
            for key, _ in ready:
                key.data()

    def connect(self) -> socket.socket:
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(self.settings.control_socket)
        peer.settimeout(1)
        self.turn()
        return peer

    def close(self) -> None:
        for key in list(self.selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self.selector.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.close()


def ask(served: Served, peer: socket.socket, text: bytes) -> dict[str, Any]:
    peer.sendall(text + b"\n")
    served.turn()
    answer: dict[str, Any] = json.loads(peer.recv(65536))
    return answer


def is_closed(peer: socket.socket) -> bool:
    try:
        while peer.recv(65536):
            continue
    except ConnectionError:
        return True
    return True


def test_answer_carries_the_number_of_its_request(served: Served) -> None:
    with served.connect() as peer:
        assert ask(served, peer, b'{"id": 7, "command": "ping"}') == {"id": 7, "done": "ping"}


@pytest.mark.parametrize(
    "text",
    [b"x", b"[]", b"7", b'"ping"', b"null", b"{}", b'{"command": []}', b"[" * 20000, b"9" * 20000, b"\xff"],
)
def test_senseless_request_is_answered_and_the_next_one_served(served: Served, text: bytes) -> None:
    with served.connect() as peer:
        answer = ask(served, peer, text)
        assert answer.get("error") or answer.get("done") == []
        assert len(json.dumps(answer)) < 1000
        assert ask(served, peer, b'{"id": 2, "command": "ping"}') == {"id": 2, "done": "ping"}


def test_line_without_end_ends_the_connection(served: Served) -> None:
    with served.connect() as peer, contextlib.suppress(ConnectionError):
        for _ in range(LINE_BYTES // 65536 + 2):
            peer.sendall(b"x" * 65536)
            served.turn()
        assert is_closed(peer)
    assert served.disconnects == 1


def test_peer_that_reads_nothing_holds_up_nobody(served: Served) -> None:
    with served.connect() as deaf, served.connect() as good:
        deaf.setblocking(False)
        with contextlib.suppress(BlockingIOError, ConnectionError):
            for _ in range(100 * UNREAD_BYTES // 20):
                deaf.send(b'{"id": 1, "command": "ping"}\n' * 50)
                served.turn()
        assert ask(served, good, b'{"id": 2, "command": "ping"}') == {"id": 2, "done": "ping"}
        assert len(served.selector.get_map()) == 2  # the listener and the good one
    assert served.disconnects == 0


def test_what_could_not_be_sent_at_once_arrives_later(served: Served) -> None:
    event = {"event": "terminating", "filling": "x" * 1000}
    with served.connect() as peer:
        for _ in range(230):
            served.server.send(event)
        received = b""
        while received.count(b"\n") < 230:
            received += peer.recv(65536)
            served.turn()
        assert [json.loads(line) for line in received.splitlines()] == [event] * 230


def test_newcomer_gets_through_when_all_places_are_taken(served: Served) -> None:
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(served.connect()) for _ in range(CONNECTIONS + 1)]
        assert ask(served, peers[-1], b'{"id": 1, "command": "ping"}')["done"] == "ping"
        assert is_closed(peers[0])
        assert ask(served, peers[1], b'{"id": 1, "command": "ping"}')["done"] == "ping"
    served.turn()
    assert served.disconnects == 1


@settings(max_examples=200)
@given(texts=st.lists(st.binary(max_size=100).filter(lambda text: b"\n" not in text), max_size=5))
def test_nothing_that_is_said_ends_the_launcher(
    tmp_path_factory: pytest.TempPathFactory, texts: list[bytes]
) -> None:
    served = Served(tmp_path_factory.mktemp("s"))
    try:
        with served.connect() as peer:
            for text in texts:
                assert "id" in ask(served, peer, text)
            assert ask(served, peer, b'{"id": 2, "command": "ping"}') == {"id": 2, "done": "ping"}
    finally:
        served.close()
