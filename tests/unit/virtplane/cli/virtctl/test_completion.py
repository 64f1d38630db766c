"""``completion``: scripts that shells take."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from virtplane.cli.virtctl import main as program


def _script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert program.main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("virtctl sta", {"start"}),
        ("virtctl stop --gr", {"--grace-period"}),
        ("virtctl -n ns stop vm --fo", {"--force"}),
        ("virtctl create ", {"clone", "instancetype", "preference", "vm", "--help"}),
        ("virtctl create clone --source", {"--source-name", "--source-type"}),
        ("virtctl credentials set", {"set-password"}),
        ("virtctl pause vm --dry", {"--dry-run"}),
    ],
)
def test_bash_completes_commands_and_flags(
    line: str, offered: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    parts = line.split(" ")
    words = " ".join(f"'{part}'" for part in parts)
    ask = f'COMP_WORDS=({words}); COMP_CWORD={len(parts) - 1}; _virtctl; echo "${{COMPREPLY[@]}}"'
    shown = subprocess.run(
        ["bash", "-c", _script("bash", capsys) + ask], capture_output=True, text=True, check=True, timeout=10
    )
    assert set(shown.stdout.split()) == offered


def _needed(shell: str) -> str:
    """The shell's program, or a skip."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("virtctl sta", {"start"}),
        ("virtctl create cl", {"clone"}),
        ("virtctl stop --gr", {"--grace-period"}),
        ("virtctl credentials set", {"set-password"}),
        ("virtctl template pro", {"process"}),
    ],
)
def test_fish_completes_commands_and_flags(
    line: str, offered: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fish = _needed("fish")
    (tmp_path / "virtctl.fish").write_text(_script("fish", capsys))
    ask = f"source {tmp_path}/virtctl.fish; complete -C '{line}'"
    shown = subprocess.run(
        [fish, "--no-config", "-c", ask],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
        env={"HOME": str(tmp_path)},
    )
    assert set(shown.stdout.split()) == offered


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("virtctl unpa", "virtctl unpause "), ("virtctl stop --gr", "virtctl stop --grace-period ")],
)
def test_zsh_completes_what_is_typed(
    typed: str, completed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zsh = _needed("zsh")
    (tmp_path / "script").write_text(_script("zsh", capsys))
    prepare = f"autoload -U compinit; compinit -u -D; source {tmp_path}/script; PS1='ready'\"> \"\n"
    child, terminal = pty.fork()
    if child == 0:
        os.execve(zsh, [zsh, "-f", "-i"], {"HOME": str(tmp_path), "TERM": "dumb"})
    try:
        os.write(terminal, prepare.encode())
        _read_until(terminal, "ready> ")
        os.write(terminal, f"{typed}\t".encode())
        _read_until(terminal, completed)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)


def _read_until(terminal: int, wanted: str) -> None:
    seen = ""
    while wanted not in seen:
        readable, _, _ = select.select([terminal], [], [], 30)
        assert readable, f"{wanted!r} does not come after {seen!r}"
        seen += os.read(terminal, 4096).decode(errors="replace")


def test_other_shells_get_scripts_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert _script("zsh", capsys).startswith("#compdef virtctl\n")
    fish = _script("fish", capsys)
    assert "complete -c virtctl -n '__fish_use_subcommand' -f -a start\n" in fish
    seen = "__fish_seen_subcommand_from create; and __fish_seen_subcommand_from clone"
    assert f"complete -c virtctl -n '{seen}' -l source-name\n" in fish
    assert "        'create clone' = @(" in _script("powershell", capsys)


def test_a_shell_that_is_unknown_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["completion", "csh"]) == 1
    assert capsys.readouterr().err == 'unknown command "csh" for "virtctl completion"\n'
