"""The supervisor with real processes: what it adopts, adds and replaces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kindling.cluster import nodeimages, processes, supervisor
from kindling.cluster.instance import Instance
from kindling.cluster.processes import ProcessSpec

ROOT = Path(__file__).parents[4]
_IDENTIFIER = f"test{os.getpid()}"


def sleeper(name: str, **environment: str) -> ProcessSpec:
    return ProcessSpec(name, [sys.executable, "-c", f"import time  # {name}\ntime.sleep(60)"], environment)


def eventually(what: str, check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


_PROGRAM = """
import sys
from pathlib import Path

from kindling.cluster.supervisor import Supervisor
from tests.unit.kindling.cluster.test_supervisor import sleeper

folder = Path(sys.argv[2])


def read():
    pairs = [line.split("=") for line in (folder / "settings").read_text().split()]
    return [sleeper(name, SETTING=value) for name, value in pairs]


Supervisor(sys.argv[1], read, folder).run()
"""


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A running supervisor, and the file from which it reads the names and settings of its processes."""
    settings = tmp_path / "settings"
    settings.write_text("one=1")
    command = [sys.executable, "-c", _PROGRAM, _IDENTIFIER, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    with subprocess.Popen(command, env=environment) as process:
        yield process, settings
        process.terminate()
    assert running() == {}


def running() -> dict[str, int]:
    return supervisor.find_children(_IDENTIFIER, [sleeper(name) for name in ("one", "two")])


def test_processes_are_added_and_replaced_when_the_layout_changes(
    supervised: tuple[subprocess.Popen[bytes], Path],
) -> None:
    process, settings = supervised
    eventually("the first one runs", lambda: set(running()) == {"one"})
    first = running()["one"]

    settings.write_text("one=1\ntwo=1")
    process.send_signal(signal.SIGHUP)
    eventually("the second one runs", lambda: set(running()) == {"one", "two"})
    second = running()["two"]
    assert running()["one"] == first

    settings.write_text("one=2\ntwo=1")
    process.send_signal(signal.SIGHUP)
    eventually("the first one is replaced", lambda: running().get("one") not in (first, None))
    assert supervisor.has_settings(running()["one"], sleeper("one", SETTING="2"))
    assert running()["two"] == second


def test_a_process_is_outdated_until_it_has_its_new_settings(
    supervised: tuple[subprocess.Popen[bytes], Path],
) -> None:
    process, settings = supervised
    eventually("the first one runs", lambda: set(running()) == {"one"})
    assert supervisor.outdated(_IDENTIFIER, [sleeper("one", SETTING="1")]) == []
    wanted = [sleeper("one", SETTING="2")]
    assert supervisor.outdated(_IDENTIFIER, wanted) == ["one"]
    settings.write_text("one=2")
    process.send_signal(signal.SIGHUP)
    eventually("it is replaced", lambda: bool(running()) and not supervisor.outdated(_IDENTIFIER, wanted))


@pytest.mark.parametrize(
    "change",
    [{"image_accounts": ("ns/a",)}, {"external_ranges": ("192.0.2.0/24",)}, {"api_flags": ("-v=4",)}],
)
def test_the_api_server_is_replaced_when_its_settings_change(tmp_path: Path, change: dict[str, Any]) -> None:
    one = Instance(tmp_path, "0a0b0c0d", "10.70.0.0/16", 6443, ("node01",))
    before, after = (processes.specs(instance)[0] for instance in (one, replace(one, **change)))
    assert before.name == after.name == "apiserver"
    assert before.environment != after.environment


def test_the_controllers_are_replaced_when_a_node_is_added_and_nothing_else_is(tmp_path: Path) -> None:
    one = Instance(tmp_path, "0a0b0c0d", "10.70.0.0/16", 6443, ("node01",))
    two = Instance(tmp_path, "0a0b0c0d", "10.70.0.0/16", 6443, ("node01", "node02"))
    before = {spec.name: spec for spec in processes.specs(one)}
    after = {spec.name: spec for spec in processes.specs(two)}
    assert set(after) - set(before) == {"containerd-node02", "node-node02"}
    assert [name for name in before if before[name] != after[name]] == ["controllers"]
    opened = replace(one, external_ranges=("192.0.2.0/24",))
    changed = {spec.name: spec for spec in processes.specs(opened)}
    assert [name for name in before if before[name] != changed[name]] == ["apiserver", "controllers"]
    assert before["controllers"].command == after["controllers"].command  # so that the old one is found


def test_a_new_node_gets_what_was_loaded_and_not_what_it_has() -> None:
    listed = "kindling.local/host:latest\nsha256:12\nvirtplane.local/debian:v1\ndocker.io/library/a:1\n"
    assert nodeimages.to_copy(listed) == ["virtplane.local/debian:v1", "docker.io/library/a:1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_process_in_a_pod_is_not_taken_for_one_of_the_clusters() -> None:
    spec = sleeper("impostor")
    mark = {supervisor.MARK: f"{_IDENTIFIER}/impostor"}
    environment = {**os.environ, **mark}

    def found() -> dict[str, int]:
        return supervisor.find_children(_IDENTIFIER, [spec])

    with subprocess.Popen(list(spec.command), env=environment) as honest:
        eventually("the process is found", lambda: found() == {"impostor": honest.pid})
        honest.kill()
    command = ["unshare", "--pid", "--fork", "--kill-child", *spec.command]
    with subprocess.Popen(command, env=environment) as parent:
        try:
            children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
            eventually("the process in the pod runs", lambda: children.read_text().strip() != "")
            pid = int(children.read_text())
            same = "\0".join(spec.command).encode() + b"\0"
            eventually("it looks like ours", lambda: Path(f"/proc/{pid}/cmdline").read_bytes() == same)
            assert found() == {}
        finally:
            parent.kill()
