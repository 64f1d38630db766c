"""Starting at boot: the unit, who writes it, and where it cannot be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from virtplane.cli import boot, cluster, main
from virtplane.cli.state import DEFAULT_STATE
from virtplane.cli.terminal import CommandError


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What systemctl was asked; units are written to a folder of the test."""
    seen: list[tuple[str, ...]] = []
    for name in ("units", "running"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(boot, "_UNITS", tmp_path / "units")
    monkeypatch.setattr(boot, "_RUNNING", tmp_path / "running")
    monkeypatch.setattr(boot, "_systemctl", lambda *arguments: seen.append(arguments))
    monkeypatch.setattr(boot, "require_root", lambda _: None)
    return seen


def test_the_unit_starts_the_cluster_at_boot_and_shuts_guests_down_with_the_machine(
    calls: list[tuple[str, ...]], tmp_path: Path
) -> None:
    state = tmp_path / "state"
    assert main.main(["boot", "enable", "--state", str(state)]) == 0
    path = boot.unit_path(state)
    assert calls == [("daemon-reload",), ("enable", "--now", path.name)]
    lines = path.read_text().splitlines()
    script = Path(boot.__file__).parents[3] / "virtplane"
    assert f'ExecStart="{script}" up --state "{state}"' in lines
    assert f'ExecStop="{script}" down --state "{state}"' in lines


def test_clusters_have_units_of_their_own() -> None:
    assert boot.unit_path(DEFAULT_STATE).name == "virtplane.service"
    assert boot.unit_path(Path("/a")) != boot.unit_path(Path("/b"))


def test_names_of_directories_mean_themselves_in_the_unit() -> None:
    text = boot.unit(Path("/p"), Path('/a b%n$HOME"'))
    assert 'ExecStart="/p" up --state "/a b%%n$$HOME\\""' in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    program = tmp_path / "a program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = tmp_path / "virtplane.service"
    path.write_text(boot.unit(program, tmp_path / "state"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False
    )
    assert str(path) not in done.stderr and path.name not in done.stderr, done.stderr


def test_without_systemd_nothing_is_written_and_the_way_out_is_told(
    calls: list[tuple[str, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "running").rmdir()
    assert main.main(["boot", "enable", "--state", str(tmp_path / "state")]) == 2
    assert "systemd is not the init of this system" in capsys.readouterr().err
    assert not list((tmp_path / "units").iterdir()) and not calls


def test_a_cluster_that_is_removed_is_not_started_at_boot(
    calls: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    boot.enable(state)
    calls.clear()
    monkeypatch.setattr(cluster, "require_root", lambda _: None)
    monkeypatch.setattr(cluster, "kindling", lambda *_, **__: 1)
    assert main.main(["reset", "--state", str(state)]) == 1
    assert boot.unit_path(state).exists()
    monkeypatch.setattr(cluster, "kindling", lambda *_, **__: 0)
    assert main.main(["reset", "--state", str(state)]) == 0
    assert not boot.unit_path(state).exists()
    assert calls == [("disable", boot.unit_path(state).name), ("daemon-reload",)]
    assert main.main(["boot", "disable", "--state", str(state)]) == 0


def test_what_systemctl_says_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "systemctl"
    program.write_text("#!/bin/sh\necho 'Unit is masked.' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(CommandError) as failed:
        boot._systemctl("enable", "x.service")
    assert (failed.value.what, failed.value.why) == ("systemctl enable x.service failed.", "Unit is masked.")
