"""``completion``: scripts that shells take."""

from __future__ import annotations

import subprocess

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
