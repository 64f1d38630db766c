"""The dispatch of ``virtplane`` and how its commands speak and end."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import virtplane
from virtplane.cli import cluster, main, nodes, terminal
from virtplane.cli import test as checks
from virtplane.cli.terminal import CommandError


@pytest.mark.parametrize("arguments", [[], ["help"], ["-h"], ["--help"]])
def test_help_lists_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(arguments) == 0
    shown = capsys.readouterr().out
    for command in (
        "up",
        "down",
        "status",
        "reset",
        "backup",
        "restore",
        "kubeconfig",
        "logs",
        "demo",
        "install",
        "image",
        "test",
    ):
        assert f"\n  {command} " in shown


def test_an_unknown_command_ends_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["dance"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("virtplane: unknown command 'dance'")


@pytest.mark.parametrize(
    ("command", "module", "given"),
    [
        ("demo", "virtplane.cli.demo", ["--x"]),
        ("run", "virtplane.run", ["--x"]),
        ("virtctl", "virtplane.cli.virtctl.main", ["--x"]),
        ("up", "virtplane.cli.cluster", ["up", "--x"]),
        ("logs", "virtplane.cli.cluster", ["logs", "--x"]),
        ("backup", "virtplane.cli.cluster", ["backup", "--x"]),
    ],
)
def test_a_command_gets_its_arguments_and_gives_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, command: str, module: str, given: list[str]
) -> None:
    seen: list[list[str]] = []

    def note(arguments: list[str]) -> int:
        seen.append(arguments)
        return 7

    fake: Any = types.ModuleType(module)
    fake.main = note
    monkeypatch.setitem(sys.modules, module, fake)
    assert main.main([command, "--x"]) == 7
    assert seen == [given]


def test_an_error_says_what_why_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    error = CommandError("It failed.", "There is no room.", "Make room.", code=3)
    assert terminal.report(error) == 3
    assert capsys.readouterr().err == "\nError: It failed.\nThere is no room.\nMake room.\n"


def test_empty_parts_of_an_error_are_left_out() -> None:
    assert str(CommandError("It failed.", do="Try again.")) == "It failed.\nTry again."
    assert CommandError("It failed.").code == terminal.EXIT_FAILED


def test_a_step_tells_how_long_it_took_or_that_it_failed(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.step("Waiting"):
        pass
    assert capsys.readouterr().err == "Waiting ... 0.0 s\n"
    with pytest.raises(ValueError, match="x"), terminal.step("Waiting"):
        raise ValueError("x")
    assert capsys.readouterr().err == "Waiting ... failed\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["up"],
        ["down"],
        ["reset"],
        ["backup", "f"],
        ["restore", "f"],
        ["demo"],
        ["load", "f"],
        ["boot", "enable"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_without_root_a_command_ends_with_three_and_says_sudo(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("VIRTPLANE_STATE", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main.main(arguments) == 3
    assert "sudo ./virtplane" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (CommandError("It is missing.", code=2), 2, "Error: It is missing."),
        (PermissionError(13, "Permission denied", "/x"), 3, "through sudo"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (KeyError("x"), 1, "Something failed that should not.\nKeyError: 'x'"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_however_a_command_fails_its_exit_code_says_so_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: str,
) -> None:
    def fail(arguments: list[str]) -> int:
        raise error

    fake: Any = types.ModuleType("virtplane.cli.demo")
    fake.main = fail
    monkeypatch.setitem(sys.modules, "virtplane.cli.demo", fake)
    assert main.main(["demo"]) == code
    shown = capsys.readouterr().err
    assert said in shown and "Traceback" not in shown


def test_a_reader_that_leaves_early_is_no_error_of_ours() -> None:
    code = "import sys; from virtplane.cli import main; sys.exit(main.main(['completion', 'fish']))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"virtplane {virtplane.__version__} (KubeVirt v1.")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_offers_every_command_and_its_options(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in (*main.COMMANDS, "grace-period", "demo-guest", "virt-handler"):
        assert word in script


def test_bash_completes_with_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["completion", "bash"])
    script = capsys.readouterr().out

    def completed(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in words)
        ask = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _virtplane; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(["bash", "-c", f"{script}{ask}"], capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert completed("virtplane", "re") == ["reset", "restore"]
    assert completed("virtplane", "down", "--g") == ["--grace-period"]
    assert completed("virtplane", "logs", "virt-h") == ["virt-handler"]


def test_the_kubeconfig_is_printed_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kubeconfig").write_text("apiVersion: v1\n")
    assert cluster.main(["kubeconfig", "--state", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "apiVersion: v1\n"


def test_a_missing_cluster_is_told_with_the_way_to_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["kubeconfig", "--state", str(tmp_path)]) == 1
    shown = capsys.readouterr().err
    assert "There is no cluster." in shown and "./virtplane up" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["up", "--nodes", "0"],
        ["up", "--nodes", "two"],
        ["up", "--port", "70000"],
        ["down", "--grace-period", "-1"],
        ["down", "--grace-period", "nan"],
        ["logs", "--lines", "-5"],
        ["status", "--frobnicate"],
        ["backup"],
        ["boot", "sometimes"],
        ["completion", "tcsh"],
    ],
    ids=" ".join,
)
def test_wrong_arguments_are_told_by_the_command_that_was_typed(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"usage: virtplane {arguments[0]}")


def test_options_of_nodes_reach_the_embedded_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def kindling(*arguments: str, state: Path) -> int:
        asked.append(arguments)
        return 2

    monkeypatch.setattr(cluster, "kindling", kindling)
    monkeypatch.setattr(cluster, "require_root", lambda _: None)
    given = ["--node-option", "cpu-manager-policy=static", "--node-option=reserved-cpus=0"]
    with pytest.raises(CommandError, match="The cluster did not start"):
        cluster.main(["up", "--state", str(tmp_path), *given])
    wanted = ("--node-option=cpu-manager-policy=static", "--node-option=reserved-cpus=0")
    assert asked[0][-2:] == wanted


def test_commands_of_the_embedded_cluster_are_passed_on_with_the_folder_of_its_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[tuple[str, ...]] = []

    def kindling(*arguments: str, state: Path) -> int:
        seen.append((*arguments, str(state)))
        return 4

    monkeypatch.setattr(cluster, "kindling", kindling)
    assert cluster.main(["status", "--state", str(tmp_path)]) == 4
    assert cluster.main(["logs", "--state", str(tmp_path), "-f", "apiserver"]) == 4
    assert seen == [
        ("status", str(tmp_path)),
        ("logs", "--lines=100", "--follow", "apiserver", str(tmp_path)),
    ]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for command in ("backup", "restore"):
        assert cluster.main([command, "--state", str(tmp_path), "file"]) == 4
        assert seen[-1] == (command, "file", str(tmp_path))
    for words, passed in (
        (["list"], ("node list",)),
        (["add"], ("node add",)),
        (["stop", "n2", "--grace-period", "5"], ("node stop", "--grace-period=5.0", "--", "n2")),
        (["remove", "--force", "n2"], ("node remove", "--grace-period=30.0", "--force", "--", "n2")),
        (["isolate", "n2"], ("node isolate", "--", "n2")),
        (["start", "n2"], ("node start", "--", "n2")),
    ):
        assert nodes.main([*words, "--state", str(tmp_path)]) == 4
        assert seen[-1] == (*passed, str(tmp_path))


_REPORT = """<testsuites><testsuite>
<testcase name="a"><properties><property name="feature" value="VML-01"/></properties></testcase>
<testcase name="b"><properties><property name="feature" value="VML-02"/></properties><skipped/></testcase>
<testcase name="c"><properties><property name="feature" value="VML-03"/></properties></testcase>
<testcase name="d"><properties><property name="feature" value="VML-03"/></properties><failure/></testcase>
<testcase name="e"><properties><property name="feature" value="VML-04"/></properties><error/></testcase>
<testcase name="f"><properties><property name="other" value="VML-05"/></properties></testcase>
</testsuite></testsuites>"""


def test_a_feature_is_proved_by_a_passed_test_and_by_no_failed_one(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(_REPORT)
    assert checks.proved_features(report) == {"VML-01"}


def test_a_check_that_fails_is_reported_with_its_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = "import sys; print('line 3: too long'); sys.exit(1)"
    monkeypatch.setattr(checks, "_CHECKS", (("style", (Path(sys.executable).name, "-c", script)),))
    assert checks.main([]) == 1
    shown = capsys.readouterr().err
    assert "The check of style failed." in shown and "line 3: too long" in shown


def test_failed_tests_are_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[list[str]] = []

    def pytest_fails(command: list[str]) -> int:
        commands.append(command)
        (junit,) = (word.partition("=")[2] for word in command if word.startswith("--junitxml="))
        failed = '<testcase classname="tests.e2e.test_scale" name="a"><failure/></testcase>'
        Path(junit).write_text(f"<testsuites><testsuite>{failed}</testsuite></testsuites>")
        return 1

    monkeypatch.setattr(checks, "_CHECKS", ())
    monkeypatch.setattr(checks, "_run", pytest_fails)
    assert checks.main(["--quick"]) == 1
    assert len(commands) == 1
    assert "Features proved: 0" in capsys.readouterr().err
