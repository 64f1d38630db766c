"""A well-behaved client in a process of its own: creates and reads small objects and times each request.

    python neighbour.py PORT TOKEN PATH

After every pair of requests it prints one line: the moment it began (monotonic, seconds) and how long the
slower of the two took (milliseconds), or ``failed`` and why. It ends when its standard input does.
"""

from __future__ import annotations

import http.client
import itertools
import json
import ssl
import sys
import threading
import time

_PAUSE_SECONDS = 0.01
_TIMEOUT_SECONDS = 20.0


def _say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main(port: str, token: str, path: str) -> int:
    """Go on until the standard input ends."""
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(
        "127.0.0.1", int(port), timeout=_TIMEOUT_SECONDS, context=context
    )
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    for number in itertools.count():
        name = f"small-{number}"
        body = json.dumps({"metadata": {"name": name}, "data": {"text": "x" * 200}})
        took = 0.0
        started = time.monotonic()
        for method, target, payload in (("POST", path, body), ("GET", f"{path}/{name}", None)):
            begun = time.monotonic()
            try:
                connection.request(method, target, payload, headers)
                answer = connection.getresponse()
                content = answer.read()
            except OSError as error:
                _say("failed", method, repr(error))
                return 1
            took = max(took, time.monotonic() - begun)
            if answer.status >= 300:
                _say("failed", method, answer.status, content[:200])
                return 1
        _say(f"{started:.6f}", f"{took * 1000:.3f}")
        if ended.wait(_PAUSE_SECONDS):
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
