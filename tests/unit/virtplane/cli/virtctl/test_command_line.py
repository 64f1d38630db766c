"""The program itself: its name, help, flags of every command, versions, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from kubecore.json import JsonObject
from virtplane import KUBEVIRT_VERSION
from virtplane.cli.virtctl import main as program
from virtplane.cli.virtctl.usage import plain_switches

from .conftest import SUB, FakeServer, Virtctl

_VERSION = "/apis/subresources.kubevirt.io/v1/version"


@pytest.mark.parametrize(
    ("started_as", "name"),
    [
        ("/usr/bin/virtctl", "virtctl"),
        ("/usr/local/bin/kubectl-virt", "kubectl virt"),
        ("oc-virt", "oc virt"),
        ("main.py", "virtctl"),
    ],
)
def test_a_plugin_calls_itself_what_its_user_typed(started_as: str, name: str) -> None:
    assert program.program_name(started_as) == name


@pytest.mark.feature("CTL-06")
@pytest.mark.parametrize("arguments", [["help"], ["--help"], ["-h"]])
def test_help_lists_all_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(arguments) == 0
    shown = capsys.readouterr().out
    words = {line.split()[0] for line in shown.splitlines() if line.startswith("  ")}
    assert {"start", "stop", "restart", "pause", "console", "vnc", "ssh", "version", "help"} <= words
    assert "options" not in words


@pytest.mark.feature("CTL-07")
@pytest.mark.parametrize("arguments", [["stop", "-h"], ["stop", "--help"], ["help", "stop"]])
def test_help_of_a_command_shows_its_options(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(arguments) == 0
    shown = capsys.readouterr().out
    assert "Shut a VM down." in shown
    assert "--grace-period" in shown and "--force" in shown


@pytest.mark.feature("CTL-61")
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_of_guestfs_shows_its_options_and_asks_no_cluster(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["guestfs", flag]) == 0
    shown = capsys.readouterr().out
    assert "Usage: virtctl guestfs" in shown
    for option in ("--fsGroup", "--gid", "--image", "--kvm", "--pull-policy", "--root", "--uid", "--vm"):
        assert f"  {option} " in shown


@pytest.mark.parametrize("line", ["", "-n lab", "create -n lab", "adm -v 4", "credentials", "template"])
def test_help_is_shown_where_no_command_is_named(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(line.split()) == 0
    assert "Available Commands" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "said"), [("--bogus", "unknown flag: --bogus"), ("-n", "flag needs an argument: 'n' in -n")]
)
def test_flags_without_a_command_are_checked(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(line.split()) == 1
    assert capsys.readouterr().err == f"{said}\n"


def test_help_of_no_command_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["help", "dance"]) == 1
    assert 'unknown command "dance"' in capsys.readouterr().err


@pytest.mark.feature("CTL-72")
@pytest.mark.parametrize(
    ("name", "variants"),
    [("guestfs", ["libguestfs"]), ("port-forward", ["port-foward", "port-forwarding"]), ("ssh", [])],
)
def test_commands_have_one_spelling(
    name: str, variants: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main([name, "--help"]) == 0
    assert f"virtctl {name} " in capsys.readouterr().out
    for variant in variants:
        assert program.main([variant, "vm/a", "80"]) == 1
        told = capsys.readouterr()
        assert (told.out, f'unknown command "{variant}" for "virtctl"' in told.err) == ("", True)


@pytest.mark.feature("CTL-08")
def test_options_shows_the_flags_of_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["options"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("The following options can be passed to any command:\n")
    for flag in ("-n, --namespace", "--kubeconfig", "--context", "-s, --server", "--token", "-v, --v"):
        assert flag in shown


@pytest.mark.feature("CTL-12")
@pytest.mark.parametrize(
    "arguments", [["-n", "here", "start", "vm"], ["start", "vm", "-n", "here"], ["-nhere", "start", "vm"]]
)
def test_the_namespace_stands_before_or_after_the_verb(
    api: FakeServer, virtctl: Virtctl, arguments: list[str]
) -> None:
    assert virtctl(*arguments).code == 0
    assert api.requests[0][1] == f"{SUB}/here/virtualmachines/vm/start"


def test_several_flags_may_stand_before_the_verb(api: FakeServer, virtctl: Virtctl) -> None:
    assert virtctl("--namespace=a", "-v", "4", "--insecure-skip-tls-verify", "stop", "vm").code == 0
    assert api.requests[0][1] == f"{SUB}/a/virtualmachines/vm/stop"


@pytest.mark.feature("CTL-13")
@pytest.mark.parametrize("flag", [["-v", "4"], ["--v=4"], ["-v4"]])
def test_verbosity_is_accepted_by_commands(api: FakeServer, virtctl: Virtctl, flag: list[str]) -> None:
    assert virtctl("start", "vm", *flag).code == 0


@pytest.mark.parametrize(
    ("given", "paused"), [("--paused=true", True), ("--paused=T", True), ("--paused=false", None)]
)
def test_switches_take_a_value_behind_an_equals_sign(
    api: FakeServer, virtctl: Virtctl, given: str, paused: bool | None
) -> None:
    assert virtctl("start", given, "vm").code == 0
    assert api.requests[0][2].get("paused") is paused


def test_a_switch_that_is_neither_is_an_error(virtctl: Virtctl, capsys: pytest.CaptureFixture[str]) -> None:
    result = virtctl("start", "--paused=perhaps", "vm")
    assert (result.code, result.err) == (
        1,
        'invalid argument "perhaps" for "--paused" flag: '
        'strconv.ParseBool: parsing "perhaps": invalid syntax\n',
    )


def test_what_stands_behind_two_dashes_is_left_alone() -> None:
    command = program.virtctl.get_command(click.Context(program.virtctl), "start")
    assert command is not None
    given = ["--paused=true", "--", "--paused=true"]
    assert plain_switches(command, given) == ["--paused", "--", "--paused=true"]


@pytest.mark.parametrize(
    ("text", "number"), [("16", 16), ("0x10", 16), ("010", 8), ("0b11", 3), ("1_000", 1000), ("-1", -1)]
)
def test_numbers_have_bases(api: FakeServer, virtctl: Virtctl, text: str, number: int) -> None:
    assert virtctl("stop", "vm", "--force", f"--grace-period={text}").code == 0
    assert api.requests[0][2] == {"gracePeriod": number}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "stop vm --grace-period=08",
            '"08" for "--grace-period" flag: strconv.ParseInt: parsing "08": invalid syntax',
        ),
        (
            f"stop vm --grace-period={10**20}",
            f'"{10**20}" for "--grace-period" flag: strconv.ParseInt: parsing "{10**20}": value out of range',
        ),
        (
            "create instancetype --memory 1Gi --cpu=-1",
            '"-1" for "--cpu" flag: strconv.ParseUint: parsing "-1": invalid syntax',
        ),
        (
            f"create instancetype --memory 1Gi --cpu={2**32}",
            f'"{2**32}" for "--cpu" flag: strconv.ParseUint: parsing "{2**32}": value out of range',
        ),
    ],
)
def test_numbers_that_are_none_or_too_large_are_told(virtctl: Virtctl, line: str, said: str) -> None:
    result = virtctl(*line.split())
    assert (result.code, result.err) == (1, f"invalid argument {said}\n")


@pytest.mark.feature("CTL-05")
def test_version_names_client_and_server(api: FakeServer, virtctl: Virtctl) -> None:
    api.answers["GET", _VERSION] = (200, {"gitVersion": "v1.9.0", "goVersion": "python3.11"})
    first, second = virtctl("version").out.splitlines()
    assert first.startswith(f'Client Version: version.Info{{GitVersion:"{KUBEVIRT_VERSION}", GitCommit:"", ')
    assert second == (
        'Server Version: version.Info{GitVersion:"v1.9.0", GitCommit:"", GitTreeState:"", BuildDate:"",'
        ' GoVersion:"python3.11", Compiler:"", Platform:""}'
    )


@pytest.mark.feature("CTL-05")
@pytest.mark.parametrize("flag", ["-c", "--client", "--client=true"])
def test_the_clients_version_needs_no_server(api: FakeServer, virtctl: Virtctl, flag: str) -> None:
    assert virtctl("version", flag).out.count("\n") == 1
    assert api.requests == []


def test_a_server_without_version_is_told(api: FakeServer, virtctl: Virtctl) -> None:
    api.refuse("GET", _VERSION, 503, "down")
    result = virtctl("version")
    assert (result.code, result.err) == (1, "failed to get server version: down\n")


@pytest.mark.parametrize(
    ("command", "action", "failure", "feature"),
    [
        ("guestosinfo", "guestosinfo", "Error getting guestosinfo of VirtualMachineInstance vm, ", "CTL-10"),
        ("userlist", "userlist", "Error listing users of VirtualMachineInstance vm, ", "CTL-11"),
        ("fslist", "filesystemlist", "Error listing filesystems of VirtualMachineInstance vm, ", "CTL-09"),
    ],
)
def test_what_the_guests_agent_tells_is_shown_as_indented_json(
    api: FakeServer, virtctl: Virtctl, request: pytest.FixtureRequest, command: str, action: str,
    failure: str, feature: str,
) -> None:  # fmt: skip
    request.node.user_properties.append(("feature", feature))
    path = f"{SUB}/default/virtualmachineinstances/vm/{action}"
    shown: JsonObject = {"metadata": {}, "items": []} if command != "guestosinfo" else {"hostname": "h"}
    api.answers["GET", path] = (200, dict(reversed(shown.items())))
    assert virtctl(command, "vm").out == json.dumps(shown, indent=2) + "\n"
    api.answers["GET", path] = (500, 'no "agent"')
    result = virtctl(command, "vm")
    words = (
        r'an error on the server ("no \"agent\"") has prevented the request from succeeding'
        " (get virtualmachineinstances.kubevirt.io vm)"
    )
    assert (result.code, result.err) == (1, f"{failure}{words}\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("dance", 'unknown command "dance" for "virtctl"'),
        ("start", "accepts 1 arg(s), received 0"),
        ("start a b", "accepts 1 arg(s), received 2"),
        ("pause vm", "accepts 2 arg(s), received 1"),
        ("version now", 'unknown command "now" for "virtctl version"'),
        ("start --what", "unknown flag: --what"),
        ("start vm -x", "unknown shorthand flag: 'x' in -x"),
        ("stop vm --grace-period", "flag needs an argument: --grace-period"),
        ("stop vm -n", "flag needs an argument: 'n' in -n"),
        (
            "stop vm --grace-period=x",
            'invalid argument "x" for "--grace-period" flag: strconv.ParseInt: parsing "x": invalid syntax',
        ),
        (
            "migrate vm --addedNodeSelector x",
            'invalid argument "x" for "--addedNodeSelector" flag: x must be formatted as key=value',
        ),
    ],
)
def test_misuse_ends_with_one_and_in_the_words_of_kubectls_family(
    virtctl: Virtctl, line: str, said: str
) -> None:
    result = virtctl(*line.split(), arguments_last=True)
    assert (result.code, result.out, result.err) == (1, "", f"{said}\n")


@pytest.mark.parametrize(
    ("server", "is_told"), [("v1.8.2", True), ("v2.9.0", True), ("v1.9.3", False), ("1.9.0", False)]
)
def test_a_refusal_by_another_release_is_introduced_by_both_versions(
    api: FakeServer, virtctl: Virtctl, server: str, is_told: bool
) -> None:
    api.refuse("PUT", f"{SUB}/default/virtualmachines/vm/start", 409, "VM is already running")
    api.answers["GET", _VERSION] = (200, {"gitVersion": server})
    notice = (
        "You are using a client virtctl version that is different from the KubeVirt version running in the"
        f" cluster\nClient Version: {KUBEVIRT_VERSION}\nServer Version: {server}\n\n"
    )
    told = virtctl("start", "vm").err
    assert told == (notice if is_told else "") + "Error starting VirtualMachine VM is already running\n"


def test_an_unreachable_server_is_named(capsys: pytest.CaptureFixture[str], api: FakeServer) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        code = pool.submit(program.main, ["start", "vm", "--server", "http://127.0.0.1:9"]).result(10)
    assert code == 1
    assert "The connection to the server 127.0.0.1:9 was refused" in capsys.readouterr().err


def test_a_server_that_is_named_gets_what_the_kubeconfig_says_besides(
    api: FakeServer, virtctl: Virtctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "theirs"}}
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [context],
        "current-context": "c",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert virtctl("start", "vm").code == 0
    assert api.requests[0][1] == f"{SUB}/theirs/virtualmachines/vm/start"
    assert api.headers[0]["Authorization"] == "Bearer secret"


def test_credentials_of_the_command_line_reach_the_server(api: FakeServer, virtctl: Virtctl) -> None:
    given = ["--token", "secret", "--as", "ann", "--as-group", "crew", "--as-group", "staff"]
    assert virtctl("start", "vm", *given).code == 0
    headers = api.headers[0]
    assert headers["Authorization"] == "Bearer secret"
    assert headers["Impersonate-User"] == "ann"
    assert headers["User-Agent"].startswith("virtctl")
