"""Tests of whole clusters ask again and again what has become of things, over a connection that they keep."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.e2e import requests
from tests.e2e.requests import Requests


@dataclass
class Server:
    """What a server was asked, each with the port of who asked."""

    asked: list[tuple[str, int]] = field(default_factory=list)
    leaves: bool = False
    """It closes connections behind its answers without a word."""

    @property
    def connections(self) -> int:
        return len({port for _, port in self.asked})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    seen = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            seen.asked.append((self.command, self.client_address[1]))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")
            self.close_connection = seen.leaves

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            pass

    class Connection(http.client.HTTPConnection):
        def __del__(self) -> None:
            self.close()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        port = serving.server_port
        monkeypatch.setattr(requests, "_connect", lambda _: Connection("127.0.0.1", port, timeout=10))
        thread = Thread(target=serving.serve_forever)
        thread.start()
        yield seen
        serving.shutdown()
        thread.join()


def ask(asking: Requests, method: str) -> None:
    assert asking.exchange(Path(), method, "/api", None, {}) == (200, b"{}")


def test_what_is_asked_again_and_again_comes_over_one_connection(server: Server) -> None:
    asking = Requests()
    for _ in range(3):
        ask(asking, "GET")
    assert (len(server.asked), server.connections) == (3, 1)
    thread = Thread(target=ask, args=(asking, "GET"))
    thread.start()
    thread.join()
    assert (len(server.asked), server.connections) == (4, 2)


def test_a_server_that_has_closed_the_connection_is_asked_anew(server: Server) -> None:
    asking = Requests()
    server.leaves = True
    for _ in range(3):
        ask(asking, "GET")
    assert (len(server.asked), server.connections) == (3, 3)


def test_what_changes_something_is_sent_once_over_a_connection_of_its_own(server: Server) -> None:
    asking = Requests()
    for leaves in (True, False):
        server.leaves = leaves
        ask(asking, "GET")
        ask(asking, "POST")
    assert [method for method, _ in server.asked] == ["GET", "POST"] * 2
    ports = [port for _, port in server.asked]
    assert ports[0] != ports[1] and ports[2] != ports[3]
