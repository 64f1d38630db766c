"""How tests of whole clusters wait: for what is meant, and as long as the machine lets them."""

from __future__ import annotations

import gc
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.e2e import support
from tests.e2e.clusters import Cluster, Machine, is_ready_again
from tests.e2e.failures import NotInTime, NotThere
from tests.e2e.processes import Process
from tests.e2e.support import Console, wait_for
from tests.support.starvation import Starvation, starvation_measured
from tests.support.web import fetch_page


@dataclass
class Clock:
    """Time that passes only where somebody sleeps."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(support, "time", clock)
    return clock


@dataclass(frozen=True)
class StartingCluster(Cluster):
    """The guest's process is seen at the third look, the component's pod with one status after the other."""

    looks: list[int] = field(default_factory=list)
    statuses: list[dict[str, Any]] = field(default_factory=list)

    def processes(self) -> list[Process]:
        self.looks.append(1)
        return [Process(7, "qemu", "guest=default_vm,")] if len(self.looks) > 2 else []

    def items(self, path: str, selector: str = "") -> list[dict[str, Any]]:
        return [{"metadata": {"name": "p", "uid": "u"}, "status": self.statuses.pop(0)}]


def test_a_process_that_is_not_there_yet_is_waited_for(clock: Clock) -> None:
    machine = Machine(StartingCluster(Path()), "vm")
    with pytest.raises(NotThere, match="no process"):
        machine.qemu()
    assert wait_for("the guest's process", machine.qemu, 10) == 7


def test_what_never_comes_fails_with_the_last_reason(clock: Clock) -> None:
    def look() -> None:
        raise NotThere("no pod of virt-handler")

    with pytest.raises(NotInTime, match=r"the pod: not within 10\.0 s .*no pod of virt-handler"):
        wait_for("the pod", look, 10)
    assert clock.now == pytest.approx(10, abs=0.2)


def test_patience_grows_with_the_starvation_of_the_machine(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def three_times_slower() -> Iterator[Starvation]:
        yield Starvation(computed=1.0, took=3.0)

    monkeypatch.setattr(support, "starvation_measured", three_times_slower)
    assert wait_for("the guest", lambda: clock.now > 25, 10)
    with pytest.raises(NotInTime, match=r"not within 30\.0 s"):
        wait_for("nothing", lambda: None, 10)


@contextmanager
def _console(*output: bytes) -> Iterator[Console]:
    """A console whose guest printed this and is silent since."""
    reads, writes = os.pipe()
    with subprocess.Popen(["true"]) as process:
        try:
            for part in output:
                os.write(writes, part)
            yield Console(reads, process)
        finally:
            os.close(reads)
            os.close(writes)


def test_a_console_is_read_until_the_text_is_there_and_keeps_what_follows() -> None:
    with _console(b"abc login: ", b"next") as console:
        assert console.expect(r"login: ", 5)[0] == "login: "
        assert console.watch(0.2) == "next"


def test_patience_with_a_console_grows_with_the_starvation_too(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def three_times_slower() -> Iterator[Starvation]:
        yield Starvation(computed=1.0, took=3.0)

    monkeypatch.setattr(support, "starvation_measured", three_times_slower)
    with (
        _console(b"all there is") as console,
        pytest.raises(NotInTime, match=r"'# ' in 0\.3 s.*all there is"),
    ):
        console.expect("# ", 0.1)


def test_starvation_is_never_below_one_and_ends_with_its_thread() -> None:
    with starvation_measured() as measured:
        while not measured.computed:
            time.sleep(0.01)
    assert measured.factor >= 1.0
    assert Starvation(computed=1.0, took=0.9).factor == 1.0
    assert Starvation().factor == 1.0


def test_the_old_status_of_a_killed_component_is_not_taken_for_its_return() -> None:
    def status(restarts: int, ready: str) -> dict[str, Any]:
        conditions = [{"type": "Ready", "status": ready}]
        return {"containerStatuses": [{"restartCount": restarts}], "conditions": conditions}

    before = {"metadata": {"name": "p", "uid": "u"}, "status": status(0, "True")}
    seen = [status(0, "True"), status(0, "False"), status(1, "False"), status(1, "True")]
    cluster = StartingCluster(Path(), statuses=seen)
    answers = [is_ready_again(cluster, "virt-handler", before) for _ in range(4)]
    assert answers == [False, False, False, True]


def test_a_page_that_is_refused_leaves_no_connection_open() -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"less")

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the test's output is its own."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(NotInTime, match="404 Not Found"):
            wait_for("the page", lambda: fetch_page(f"http://127.0.0.1:{server.server_port}/"), 0.1)
        gc.collect()  # a connection that is still open warns here, and warnings are errors
        server.shutdown()
