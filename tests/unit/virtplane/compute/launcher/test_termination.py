"""A launcher that is told to end: virt-handler shuts the guest down, or else the launcher does."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from virtplane.compute.launcher import main
from virtplane.compute.launcher.libvirtd import LibvirtDaemon
from virtplane.compute.launcher.settings import parse


class Daemon:
    """libvirt's daemon with a domain; `pressed` counts the power button."""

    was_started = True

    def __init__(self) -> None:
        self.pid: int | None = 1
        self.pressed = 0
        self.guest: int | None = 17

    def shut_domain_down(self) -> int:
        self.pressed += 1
        return 4711

    def guest_pid(self) -> int | None:
        return self.guest


class Control:
    """The line to virt-handler."""

    def __init__(self) -> None:
        self.connected = True
        self.sent: list[dict[str, Any]] = []

    def send(self, event: dict[str, Any]) -> None:
        self.sent.append(event)


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[main.Launcher]:
    options = ["--name", "vm", "--uid", "u", "--namespace", "ns", "--grace-period-seconds", "60"]
    options += ["--kubevirt-share-dir", str(tmp_path), "--private-dir", str(tmp_path)]
    made = main.Launcher(parse([*options, "--runtime-dir", str(tmp_path)]))
    made._control._listener.close()
    monkeypatch.setattr(made, "_libvirt", Daemon())
    monkeypatch.setattr(made, "_control", Control())
    yield made
    made._selector.close()


def _pressed(launcher: main.Launcher) -> int:
    daemon: Any = launcher._libvirt
    return int(daemon.pressed)


def _end(child: int, launcher: main.Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the launcher's children ends."""
    ended = [(child, 0), (0, 0)]
    monkeypatch.setattr(os, "waitpid", lambda *_: ended.pop(0))
    launcher._reap()


def test_virt_handler_is_asked_where_it_is_there(launcher: main.Launcher) -> None:
    launcher._on_termination()
    control: Any = launcher._control
    assert control.sent == [{"event": "terminating"}]
    assert _pressed(launcher) == 0


def test_a_guest_whose_daemon_has_just_ended_has_its_grace_period(launcher: main.Launcher) -> None:
    daemon: Any = launcher._libvirt
    daemon.pid = None
    launcher._on_termination()
    assert launcher._exit_code is None
    assert launcher._kill_at is not None


def test_the_launcher_shuts_the_guest_down_when_virt_handler_leaves_first(launcher: main.Launcher) -> None:
    control: Any = launcher._control
    launcher._on_disconnect()
    assert _pressed(launcher) == 0
    launcher._on_termination()
    control.connected = False
    launcher._on_disconnect()
    assert _pressed(launcher) == 1


def test_the_power_button_is_pressed_again_and_its_end_is_not_the_guests(
    launcher: main.Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    control: Any = launcher._control
    control.connected = False
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    launcher._on_termination()
    assert _pressed(launcher) == 1
    _end(4711, launcher, monkeypatch)
    assert launcher._exit_code is None
    assert launcher._next_timeout() == 5.0
    now += 5.0
    launcher._on_time()
    assert _pressed(launcher) == 2
    now += 55.0
    launcher._on_time()
    assert launcher._exit_code == 0


def test_an_orphans_end_is_not_the_guests(launcher: main.Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """What virt-freezer and ``kubectl exec`` leave behind becomes the launcher's child."""
    control: Any = launcher._control
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    launcher._on_termination()
    _end(4242, launcher, monkeypatch)
    assert launcher._next_timeout() == 60.0
    control.connected = False
    _end(4243, launcher, monkeypatch)
    assert launcher._exit_code is None


@pytest.mark.parametrize("is_connected", [True, False])
def test_the_guests_end_ends_the_launcher(
    launcher: main.Launcher, monkeypatch: pytest.MonkeyPatch, is_connected: bool
) -> None:
    control: Any = launcher._control
    daemon: Any = launcher._libvirt
    control.connected = is_connected
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    launcher._on_termination()
    daemon.guest = None  # libvirt's pid file is gone by the time the launcher reaps
    _end(17, launcher, monkeypatch)
    assert launcher._exit_code == (None if is_connected else 0)
    if is_connected:
        assert launcher._next_timeout() == 5.0  # virt-handler reads why it ended


def test_a_guest_that_started_after_the_signal_is_known_when_virt_handler_leaves(
    launcher: main.Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    control: Any = launcher._control
    daemon: Any = launcher._libvirt
    daemon.guest = None
    launcher._on_termination()
    daemon.guest = 23
    control.connected = False
    launcher._on_disconnect()
    _end(23, launcher, monkeypatch)
    assert launcher._exit_code == 0


@pytest.mark.parametrize("seconds", [3_000_000, 2**63 - 1])
def test_a_grace_period_of_months_is_waited_for(
    launcher: main.Launcher, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    monkeypatch.setattr(launcher._settings, "grace_period_seconds", seconds)
    launcher._on_termination()
    wakeup, wake = os.pipe()
    launcher._selector.register(wakeup, selectors.EVENT_READ)
    os.write(wake, b"w")
    assert launcher._selector.select(launcher._next_timeout())
    launcher._on_time()
    assert launcher._exit_code is None
    for descriptor in (wakeup, wake):
        os.close(descriptor)


@pytest.mark.parametrize("folder", ["libvirt/qemu/run", "libvirt/qemu"])
def test_the_guests_process_is_read_from_libvirts_pid_file(tmp_path: Path, folder: str) -> None:
    options = ["--name", "vm", "--uid", "u", "--namespace", "ns", "--runtime-dir", str(tmp_path)]
    daemon = LibvirtDaemon(parse(options))
    assert daemon.guest_pid() is None
    file = tmp_path / folder / "ns_vm.pid"
    file.parent.mkdir(parents=True)
    file.write_text("10303")
    assert daemon.guest_pid() == 10303
    file.write_text("no number")
    assert daemon.guest_pid() is None
    file.unlink()
    os.mkfifo(file)
    assert daemon.guest_pid() is None
