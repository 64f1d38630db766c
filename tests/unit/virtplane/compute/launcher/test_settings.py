"""The launcher's command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from virtplane.compute.launcher.settings import options, parse, program

WHO = ["--name", "vm", "--uid", "u", "--namespace=ns"]


def test_values_follow_as_words_or_after_an_equals_sign_and_flags_stand_alone() -> None:
    assert options(["--a", "1", "--b=2", "--flag", "--c", "3"]) == {"a": "1", "b": "2", "flag": "", "c": "3"}


def test_words_without_an_option_are_left_out() -> None:
    assert options(["stray", "--a", "1", "more"]) == {"a": "1"}


def test_paths_are_those_of_the_pods_volumes_unless_told_otherwise() -> None:
    settings = parse([*WHO, "--ovmf-path", "/usr/share/OVMF", "--allow-emulation"])
    assert (settings.name, settings.uid, settings.namespace) == ("vm", "u", "ns")
    assert settings.control_socket == "/var/run/kubevirt/sockets/launcher-sock"
    assert settings.libvirt_socket == "/var/run/libvirt/libvirt-sock"
    assert settings.grace_period_seconds == 30
    moved = parse([*WHO, "--runtime-dir", "/r", "--kubevirt-share-dir=/s", "--grace-period-seconds", "45"])
    assert (moved.cache_directory, moved.initial_socket) == (
        "/r/libvirt/cache",
        "/s/sockets/launcher-init-sock",
    )
    assert moved.grace_period_seconds == 45


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(["--name", "vm"], "--uid is missing"), ([*WHO, "--grace-period-seconds", "soon"], "'soon'")],
)
def test_a_wrong_command_line_ends_with_two_and_says_why(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_the_first_executable_of_a_search_path_is_taken(tmp_path: Path) -> None:
    for folder, mode in (("a", 0o644), ("b", 0o755)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").write_text("")
        (tmp_path / folder / "tool").chmod(mode)
    assert program("tool", f"{tmp_path}/a:{tmp_path}/b") == f"{tmp_path}/b/tool"
    assert program("other", f"{tmp_path}/a:{tmp_path}/b") is None
