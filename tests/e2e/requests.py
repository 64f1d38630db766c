"""Requests to a cluster's API server as its administrator."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from pathlib import Path

from tests.e2e.failures import ANSWERS_LOST

_SECONDS = 20.0


class _Connection(http.client.HTTPSConnection):
    """Is closed when nobody has it any more."""

    def __del__(self) -> None:
        self.close()


class Requests(threading.local):
    """Makes requests. What is only read comes over a connection that each thread keeps.

    Most requests are polls, and a handshake costs both sides several times what such a request does.
    """

    def __init__(self) -> None:
        self._kept: _Connection | None = None

    def exchange(
        self, state: Path, method: str, path: str, body: str | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        """The answer to one request: its code and its body. Raises OSError, http.client.HTTPException."""
        kept, self._kept = self._kept, None
        if kept is not None and method == "GET":
            try:
                return self._ask(kept, method, path, body, headers)
            except TimeoutError:
                raise
            except ANSWERS_LOST:
                kept.close()  # its server has closed it or is another one now: to be asked anew
        return self._ask(_connect(state), method, path, body, headers)

    def _ask(
        self, connection: _Connection, method: str, path: str, body: str | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        found = answer.status, answer.read()
        if not answer.will_close:
            self._kept = connection
        return found


def _connect(state: Path) -> _Connection:
    tls = ssl.create_default_context(cafile=str(state / "pki/ca.crt"))
    tls.load_cert_chain(state / "pki/admin.crt", state / "pki/admin.key")
    port = json.loads((state / "instance.json").read_text())["api_port"]
    return _Connection("127.0.0.1", port, context=tls, timeout=_SECONDS)
