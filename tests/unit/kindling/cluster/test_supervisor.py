"""The supervisor with real processes: what it adopts, adds and replaces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import blocking_until

from kindling.cluster import certificates, fingerprints, nodeimages, processes, supervision, supervisor
from kindling.cluster.instance import Instance
from kindling.cluster.processes import ProcessSpec

ROOT = Path(__file__).parents[4]
_IDENTIFIER = f"test{os.getpid()}"


def sleeper(name: str, **environment: str) -> ProcessSpec:
    return ProcessSpec(name, [sys.executable, "-c", f"import time  # {name}\ntime.sleep(60)"], environment)


_PROGRAM = """
import sys
from pathlib import Path

from kindling.cluster.errors import SetupError
from kindling.cluster.processes import ProcessSpec
from kindling.cluster.supervisor import Supervisor
from tests.unit.kindling.cluster.test_supervisor import sleeper

folder = Path(sys.argv[2])


def read():
    text = (folder / "settings").read_text()
    if text == "damaged":
        raise SetupError("settings", "damaged")
    pairs = [line.split("=") for line in text.split()]
    return [sleeper(name, SETTING=value) for name, value in pairs]


change = f"with open('{folder}/settings', 'w') as file: file.write('one=1 two=1')"
chores = [ProcessSpec("chore", [sys.executable, "-c", change])] if "chore" in sys.argv else []


def record(names):
    (folder / "recorded").write_text(" ".join(names))


Supervisor(sys.argv[1], read, folder, chores, chore_seconds=0.3, record=record).run()
"""


@pytest.fixture
def supervised(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A running supervisor, and the file from which it reads the names and settings of its processes."""
    settings = tmp_path / "settings"
    settings.write_text("one=1")
    wishes = [request.param] if hasattr(request, "param") else []
    command = [sys.executable, "-c", _PROGRAM, _IDENTIFIER, str(tmp_path), *wishes]
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
    blocking_until("the first one runs", lambda: set(running()) == {"one"})
    first = running()["one"]

    settings.write_text("one=1\ntwo=1")
    process.send_signal(signal.SIGHUP)
    blocking_until("the second one runs", lambda: set(running()) == {"one", "two"})
    second = running()["two"]
    assert running()["one"] == first

    settings.write_text("one=2\ntwo=1")
    process.send_signal(signal.SIGHUP)
    blocking_until("the first one is replaced", lambda: running().get("one") not in (first, None))
    assert supervisor.has_settings(running()["one"], sleeper("one", SETTING="2"))
    assert running()["two"] == second


def test_a_process_that_is_no_longer_wanted_is_ended_before_the_others_are_recorded(
    supervised: tuple[subprocess.Popen[bytes], Path],
) -> None:
    process, settings = supervised
    recorded = settings.with_name("recorded")
    blocking_until("the first one runs", lambda: set(running()) == {"one"})
    settings.write_text("one=1 two=1")
    process.send_signal(signal.SIGHUP)
    blocking_until("both run", lambda: set(running()) == {"one", "two"})
    blocking_until("both are recorded", lambda: recorded.read_text() == "one two")
    first = running()["one"]
    settings.write_text("one=1")
    recorded.unlink()
    process.send_signal(signal.SIGHUP)
    blocking_until("one is recorded", lambda: recorded.exists() and recorded.read_text() == "one")
    assert running() == {"one": first}


def test_a_process_with_the_command_of_an_earlier_version_is_found() -> None:
    earlier = sleeper("one")
    wanted = replace(earlier, command=["another"], earlier=earlier.command)
    mark = {supervisor.MARK: f"{_IDENTIFIER}/one"}
    with subprocess.Popen(list(earlier.command), env={**os.environ, **mark}) as process:
        try:
            found = {"one": process.pid}
            blocking_until("it is found", lambda: supervisor.find_children(_IDENTIFIER, [wanted]) == found)
        finally:
            process.kill()


def test_processes_stay_as_they_are_while_the_layout_cannot_be_read(
    supervised: tuple[subprocess.Popen[bytes], Path],
) -> None:
    process, settings = supervised
    blocking_until("the first one runs", lambda: set(running()) == {"one"})
    first = running()["one"]

    settings.write_text("damaged")
    process.send_signal(signal.SIGHUP)
    os.kill(first, signal.SIGKILL)
    blocking_until("the first one runs again", lambda: running().get("one") not in (first, None))

    settings.write_text("one=1\ntwo=1")
    process.send_signal(signal.SIGHUP)
    blocking_until("the second one runs", lambda: set(running()) == {"one", "two"})


@pytest.mark.parametrize("supervised", ["chore"], indirect=True)
def test_what_a_chore_has_changed_is_read_when_it_ends(
    supervised: tuple[subprocess.Popen[bytes], Path],
) -> None:
    blocking_until("the second one runs", lambda: set(running()) == {"one", "two"})
    log = supervised[1].parent / "chore.log"
    assert log.read_bytes() == b""


def test_a_process_is_outdated_until_it_has_its_new_settings(
    supervised: tuple[subprocess.Popen[bytes], Path],
) -> None:
    process, settings = supervised
    blocking_until("the first one runs", lambda: set(running()) == {"one"})
    assert supervisor.outdated(_IDENTIFIER, [sleeper("one", SETTING="1")]) == []
    wanted = [sleeper("one", SETTING="2")]
    assert supervisor.outdated(_IDENTIFIER, wanted) == ["one"]
    settings.write_text("one=2")
    process.send_signal(signal.SIGHUP)
    blocking_until("it is replaced", lambda: bool(running()) and not supervisor.outdated(_IDENTIFIER, wanted))


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


def changed_by(instance: Instance, change: Callable[[], object]) -> set[str]:
    """Processes that are to be replaced after `change`."""
    before = processes.specs(instance)
    change()
    return {old.name for old, new in zip(before, processes.specs(instance), strict=True) if old != new}


def test_processes_are_replaced_when_what_they_read_at_their_start_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = Instance(tmp_path, "0a0b0c0d", "10.70.0.0/16", 6443, ("node01", "node02"))
    certificates.ensure(instance)
    for node in instance.nodes():
        node.directory.mkdir(parents=True)

    def renew(name: str) -> None:
        (instance.pki / f"{name}.crt").unlink()
        certificates.ensure(instance)

    assert changed_by(instance, lambda: certificates.ensure(instance)) == set()
    assert changed_by(instance, lambda: renew("apiserver")) == {"apiserver"}
    assert changed_by(instance, lambda: renew("scheduler")) == {"controllers"}
    assert changed_by(instance, lambda: renew("node-node02-server")) == {"node-node02"}
    config = instance.node("node01").directory / "containerd.toml"
    assert changed_by(instance, lambda: config.write_text("version = 2")) == {"containerd-node01"}
    own = {"apiserver", "controllers", "node-node01", "node-node02"}
    assert changed_by(instance, lambda: monkeypatch.setattr(fingerprints, "of_code", lambda: "new")) == own
    flags = [
        replace(instance, image_accounts=("kubevirt/kubevirt-handler",)),
        replace(instance, api_flags=("--audit-log=/dev/null",)),
    ]
    for other in flags:
        both = zip(processes.specs(instance), processes.specs(other), strict=True)
        assert [old.name for old, new in both if old != new] == ["apiserver"]


def test_the_fingerprint_of_code_is_that_of_its_files(tmp_path: Path) -> None:
    module = tmp_path / "kindling" / "cluster" / "cli.py"
    module.parent.mkdir(parents=True)
    module.write_text("one = 1")
    first = fingerprints.of_source(tmp_path)
    assert fingerprints.of_source(tmp_path) == first
    module.write_text("one = 2")
    assert fingerprints.of_source(tmp_path) != first


_STAND_IN = "import signal, sys\nsignal.sigwait({signal.SIGHUP, signal.SIGTERM})\nsys.exit(7)"


@pytest.mark.parametrize("version", ["this", "earlier"])
def test_a_supervisor_of_an_earlier_version_makes_room_for_a_new_one(tmp_path: Path, version: str) -> None:
    instance = Instance(tmp_path, "0a0b0c0d", "10.70.0.0/16", 6443, ("node01",))
    environment = dict(os.environ)
    if version == "this":
        environment |= processes.supervisor(instance).environment
    block = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {1, 15})\nprint(flush=True)\n"
    command = [sys.executable, "-c", block + _STAND_IN, "supervise", "--state", str(tmp_path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as stand_in:
        assert stand_in.stdout is not None
        stand_in.stdout.readline()
        (tmp_path / "supervisor.pid").write_text(str(stand_in.pid))
        told = supervision._reload_supervisor(instance)
        assert told is (version == "this")
        assert stand_in.wait(10) == (7 if told else -signal.SIGKILL)


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
        blocking_until("the process is found", lambda: found() == {"impostor": honest.pid})
        honest.kill()
    command = ["unshare", "--pid", "--fork", "--kill-child", *spec.command]
    with subprocess.Popen(command, env=environment) as parent:
        try:
            children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
            blocking_until("the process in the pod runs", lambda: children.read_text().strip() != "")
            pid = int(children.read_text())
            same = "\0".join(spec.command).encode() + b"\0"
            blocking_until("it looks like ours", lambda: Path(f"/proc/{pid}/cmdline").read_bytes() == same)
            assert found() == {}
        finally:
            parent.kill()
