"""The dispatch of ``virtplane`` and how its commands speak and end."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from virtplane.cli import cluster, demo, main, terminal
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
    fake = types.ModuleType(module)
    fake.main = lambda arguments: seen.append(arguments) or 7  # type: ignore[attr-defined, func-returns-value]
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
    "command",
    [lambda: cluster.main(["up"]), lambda: cluster.main(["reset"]), lambda: demo.main([])],
    ids=["up", "reset", "demo"],
)
def test_without_root_a_command_ends_with_three_and_says_sudo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: object, tmp_path: Path
) -> None:
    monkeypatch.setenv("VIRTPLANE_STATE", str(tmp_path))
    monkeypatch.setattr(terminal.os, "geteuid", lambda: 1000)
    assert callable(command)
    assert command() == 3
    assert "sudo ./virtplane" in capsys.readouterr().err


def test_the_kubeconfig_is_printed_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kubeconfig").write_text("apiVersion: v1\n")
    assert cluster.main(["kubeconfig", "--state", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "apiVersion: v1\n"


def test_a_missing_cluster_is_told_with_the_way_to_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.main(["kubeconfig", "--state", str(tmp_path)]) == 1
    shown = capsys.readouterr().err
    assert "There is no cluster." in shown and "./virtplane up" in shown


def test_commands_of_the_embedded_cluster_are_passed_on_with_the_folder_of_its_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[tuple[str, ...]] = []

    def kindling(*arguments: str, state: Path) -> int:
        seen.append((*arguments, str(state)))
        return 4

    monkeypatch.setattr(cluster, "kindling", kindling)
    assert cluster.main(["status", "--state", str(tmp_path)]) == 4
    assert cluster.main(["logs", "--state", str(tmp_path), "apiserver"]) == 4
    assert seen == [("status", str(tmp_path)), ("logs", "apiserver", str(tmp_path))]
    monkeypatch.setattr(terminal.os, "geteuid", lambda: 0)
    for command in ("backup", "restore"):
        assert cluster.main([command, "--state", str(tmp_path), "file"]) == 4
        assert seen[-1] == (command, "file", str(tmp_path))


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


@pytest.mark.parametrize(
    ("failed", "again"),
    [("tests.e2e.test_scale", True), ("tests.clients.test_kopf", True), ("tests.unit.test_x", False)],
)
def test_only_whole_servers_and_clusters_are_tried_again(tmp_path: Path, failed: str, again: bool) -> None:
    junit = tmp_path / "report.xml"
    junit.write_text(
        '<testsuites><testsuite><testcase classname="tests.unit.test_fine" name="a"/>'
        f'<testcase classname="{failed}" name="b"><failure/></testcase></testsuite></testsuites>'
    )
    assert checks.only_whole_servers_failed(junit) is again
