"""Ending containers before a stopped cluster's pods are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from kindling.cluster import termination

_READY = "print(flush=True)\nwhile True: time.sleep(60)"
POLITE = f"import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); {_READY}"
STUBBORN = f"import signal, time; signal.signal(15, lambda *_: None); {_READY}"
DEAF = f"import signal, time; signal.signal(15, signal.SIG_IGN); {_READY}"


@pytest.fixture
def processes() -> Iterator[dict[str, int]]:
    started = {
        name: subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
        for name, code in (("polite", POLITE), ("stubborn", STUBBORN), ("deaf", DEAF))
    }
    for process in started.values():
        assert process.stdout is not None
        process.stdout.readline()
    yield {name: process.pid for name, process in started.items()}
    for process in started.values():
        process.kill()
        process.communicate()


def test_those_that_heed_the_signal_end_and_are_not_named(processes: dict[str, int]) -> None:
    begun = time.monotonic()
    assert termination.terminate([processes["polite"], processes["deaf"]], 60.0) == []
    assert time.monotonic() - begun < 30
    assert os.waitid(os.P_PID, processes["polite"], os.WEXITED | os.WNOWAIT) is not None


def test_those_that_take_too_long_are_named(processes: dict[str, int]) -> None:
    assert termination.terminate(list(processes.values()), 0.5) == [processes["stubborn"]]


def test_nobody_waits_for_a_process_that_ignores_the_signal(processes: dict[str, int]) -> None:
    assert termination.catches_sigterm(processes["polite"])
    assert not termination.catches_sigterm(processes["deaf"])
    assert not termination.catches_sigterm(2**22 + 1)


def test_the_first_process_of_a_container_is_started_by_none_of_its_processes() -> None:
    with subprocess.Popen(["sh", "-c", "echo; sleep 60 & wait"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        below = 0
        while not below:
            found = subprocess.run(
                ["pgrep", "-P", str(shell.pid)], capture_output=True, text=True, check=False
            )
            below = int(found.stdout or 0)
        assert termination.first_processes({shell.pid, below}) == [shell.pid]
        for pid in (below, shell.pid):
            os.kill(pid, signal.SIGKILL)
