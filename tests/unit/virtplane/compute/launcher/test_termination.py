"""A launcher that is told to end: virt-handler shuts the guest down, or else the launcher does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from virtplane.compute.launcher import main
from virtplane.compute.launcher.settings import parse


class Daemon:
    """libvirt's daemon with a domain; `pressed` counts the power button."""

    pid = 1

    def __init__(self) -> None:
        self.pressed = 0

    def shut_domain_down(self, domain: str) -> int:
        assert domain == "ns_vm"
        self.pressed += 1
        return 4711


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


def test_virt_handler_is_asked_where_it_is_there(launcher: main.Launcher) -> None:
    launcher._on_termination()
    control: Any = launcher._control
    assert control.sent == [{"event": "terminating"}]
    assert _pressed(launcher) == 0


def test_the_launcher_shuts_the_guest_down_when_virt_handler_leaves_first(launcher: main.Launcher) -> None:
    control: Any = launcher._control
    launcher._left_alone()
    assert _pressed(launcher) == 0
    launcher._on_termination()
    control.connected = False
    launcher._left_alone()
    assert _pressed(launcher) == 1


def test_the_power_button_is_pressed_again_and_its_end_is_not_the_guests(
    launcher: main.Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    control: Any = launcher._control
    control.connected = False
    now = 100.0
    monkeypatch.setattr(main.time, "monotonic", lambda: now)
    launcher._on_termination()
    assert _pressed(launcher) == 1
    ended = [(4711, 0), (0, 0)]
    monkeypatch.setattr(main.os, "waitpid", lambda *_: ended.pop(0))
    launcher._reap()
    assert launcher._exit_code is None
    assert launcher._next_timeout() == 5.0
    now += 5.0
    launcher._on_time()
    assert _pressed(launcher) == 2
    now += 55.0
    launcher._on_time()
    assert launcher._exit_code == 0
