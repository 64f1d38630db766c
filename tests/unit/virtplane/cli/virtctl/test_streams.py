"""Consoles, displays, forwarded ports and SSH: bytes between this terminal and a guest."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import click
import pytest
from aiohttp import web

from virtplane.cli.virtctl.talking import vnc
from virtplane.cli.virtctl.talking.portforward import Port, Target, parse_port, parse_target

from .conftest import SUB, FakeServer, Virtctl

SOURCES = Path(__file__).parents[5] / "src"
_CONSOLE = f"{SUB}/default/virtualmachineinstances/vm/console"


async def _echo(socket: web.WebSocketResponse) -> None:
    async for message in socket:
        await socket.send_bytes(b"<" + message.data + b">")


async def _say_good_bye(socket: web.WebSocketResponse) -> None:
    await socket.send_bytes(b"bye")


async def _greet(socket: web.WebSocketResponse) -> None:
    await socket.send_bytes(b"RFB 003.008\n")
    await socket.receive()


def _start(api: FakeServer, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "virtplane.cli.virtctl.main", *arguments, "--server", api.url]
    variables = {"PYTHONPATH": str(SOURCES), "PATH": os.environ["PATH"], **environment}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=variables)


def _read_until(stream: Any, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        piece = os.read(stream.fileno(), 4096)
        assert piece, f"ended after {seen!r}"
        seen += piece
    return seen


@pytest.mark.feature("ACC-14", "CTL-30")
def test_the_console_carries_keys_until_the_escape_key(api: FakeServer) -> None:
    api.stream = _echo
    process = _start(api, "console", "vm")
    assert process.stdin and process.stdout and process.stderr
    banner = b"Successfully connected to vm console. Press Ctrl+] or Ctrl+5 to exit console.\n"
    _read_until(process.stderr, banner)
    process.stdin.write(b"ls\n")
    process.stdin.flush()
    _read_until(process.stdout, b"<ls\n>")
    process.stdin.write(b"\x1d")
    process.stdin.flush()
    process.communicate(timeout=10)
    assert process.returncode == 0
    assert [path for _, path, _ in api.requests] == [_CONSOLE]


@pytest.mark.feature("ACC-14")
def test_a_missing_machines_console_is_refused_in_kubevirts_words(api: FakeServer) -> None:
    api.refuse("GET", _CONSOLE, 404, 'virtualmachineinstance.kubevirt.io "vm" not found')
    _, errors = _start(api, "console", "vm").communicate(timeout=10)
    assert errors == b'virtualmachineinstance.kubevirt.io "vm" not found\n'


@pytest.mark.feature("ACC-06")
def test_a_console_that_is_lost_says_why_that_may_be_and_fails(api: FakeServer) -> None:
    api.stream, api.hangs_up = _say_good_bye, True
    output, errors = _start(api, "console", "vm").communicate(timeout=10)
    assert output == b"bye"
    _, banner, told = errors.partition(b"to exit console.\n")
    assert banner and told == (
        b"\nYou were disconnected from the console. This could be caused by one of the following:"
        b"\n - the target VM was powered off"
        b"\n - another user connected to the console of the target VM"
        b"\n - network issues\n"
        b"websocket: close 1006 (abnormal closure): unexpected EOF\n"
    )


def test_a_console_whose_server_takes_leave_ends_well(api: FakeServer) -> None:
    api.stream = _say_good_bye
    process = _start(api, "console", "vm")
    process.communicate(timeout=10)
    assert process.returncode == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _first_line(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    line = await reader.readline()
    writer.close()
    return line


@pytest.mark.parametrize("fixed", [pytest.param(False, id="free-port"), pytest.param(True, id="own-port")])
@pytest.mark.feature("ACC-04", "ACC-05", "CTL-32", "CTL-33")
async def test_the_displays_proxy_prints_its_port_and_serves_it(api: FakeServer, fixed: bool) -> None:
    api.stream = _greet
    port = _free_port()
    arguments = [f"--port={port}"] if fixed else []
    process = _start(api, "vnc", "--proxy-only=true", *arguments, "vm")
    assert process.stdout
    printed = json.loads(await asyncio.to_thread(process.stdout.readline))
    assert list(printed) == ["port"]
    assert not fixed or printed["port"] == port
    assert await _first_line(printed["port"]) == b"RFB 003.008\n"
    await asyncio.to_thread(process.communicate, timeout=10)
    assert f"{SUB}/default/virtualmachineinstances/vm/vnc?preserveSession=false" in [
        path for _, path, _ in api.requests
    ]


@pytest.mark.feature("ACC-03", "CTL-31")
def test_a_viewer_is_started_on_the_display(api: FakeServer, tmp_path: Path) -> None:
    api.stream = _greet
    api.answers["GET", "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances/vm"] = (
        200,
        {"status": {"conditions": [{"type": "Paused", "status": "True"}]}},
    )
    viewer = tmp_path / "remote-viewer"
    viewer.write_text(
        f"#!{sys.executable}\n"
        "import socket, sys, urllib.parse\n"
        "url = urllib.parse.urlsplit(sys.argv[1])\n"
        "assert url.scheme == 'vnc'\n"
        # virtctl ends its viewer with the connection, so that stays open until the file is written.
        "display = socket.create_connection((url.hostname, url.port))\n"
        "line = display.recv(100)\n"
        f"with open({str(tmp_path / 'seen')!r}, 'wb') as seen:\n"
        "    seen.write(line)\n"
        "display.close()\n"
    )
    viewer.chmod(0o755)
    process = _start(api, "vnc", "vm", "-n", "ns", "-v", "4", PATH=str(tmp_path))
    _, errors = process.communicate(timeout=15)
    assert process.returncode == 0
    assert (tmp_path / "seen").read_bytes() == b"RFB 003.008\n"
    assert b"Warning: vm is paused. Console will be active after unpause.\n" in errors


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("", "could not find remote-viewer or vncviewer binary in $PATH"),
        ("--vnc-path /bin/true", "could not find remote-viewer or vncviewer binary in $PATH"),
        ("--vnc-type x", "unsupported vnc-type: x"),
        (
            "--vnc-type tiger",
            'could not find vncviewer in $PATH: exec: "vncviewer": executable file not found in $PATH',
        ),
        ("--vnc-type tiger --vnc-path /nowhere", "specified VNC path does not exist: /nowhere"),
    ],
)
def test_a_machine_without_viewer_says_so(api: FakeServer, tmp_path: Path, flags: str, said: str) -> None:
    api.stream = _greet
    process = _start(api, "vnc", "vm", *flags.split(), PATH=str(tmp_path))
    _, errors = process.communicate(timeout=15)
    assert (process.returncode, errors.decode()) == (1, f"error encountered: {said}\n")


def test_a_viewer_may_be_chosen_by_type_and_path(tmp_path: Path) -> None:
    assert vnc.find_viewer("tiger", str(tmp_path)) == (str(tmp_path), "{address}")
    assert vnc.find_viewer("remote-viewer", str(tmp_path)) == (str(tmp_path), "vnc://{address}")


@pytest.mark.feature("ACC-03")
def test_a_display_that_is_refused_names_the_instance(api: FakeServer, virtctl: Virtctl) -> None:
    api.refuse("GET", f"{SUB}/default/virtualmachineinstances/vm/vnc", 404, "gone")
    result = virtctl("vnc", "vm")
    assert (result.code, result.err) == (1, "can't access VMI vm: gone\n")


_USB = f"{SUB}/default/virtualmachineinstances/vm/usbredir"


def _usb_client(tmp_path: Path, lines: str) -> None:
    """A program called usbredirect."""
    program = tmp_path / "usbredirect"
    program.write_text(f"#!{sys.executable}\nimport socket, sys\n{lines}")
    program.chmod(0o755)


def test_a_usb_device_is_given_to_the_guest_by_usbredirect(api: FakeServer, tmp_path: Path) -> None:
    api.stream = _greet
    seen = tmp_path / "seen"
    _usb_client(
        tmp_path,
        "host, port = sys.argv[4].split(':')\n"
        "device = socket.create_connection((host, int(port)))\n"
        "line = device.recv(100).decode()\n"
        f"open({str(seen)!r}, 'w').write(' '.join(sys.argv[1:4]) + ' ' + line)\n",
    )
    process = _start(api, "usbredir", "0951:1666", "vm", PATH=str(tmp_path))
    process.communicate(timeout=15)
    assert process.returncode == 0
    assert seen.read_text() == "--device 0951:1666 --to RFB 003.008\n"
    assert [path for _, path, _ in api.requests] == [_USB]


@pytest.mark.parametrize("words", [["vm"], ["0951:1666", "vm"]])
async def test_a_user_may_connect_a_usb_client(api: FakeServer, tmp_path: Path, words: list[str]) -> None:
    api.stream = _greet
    process = _start(api, "usbredir", "--no-launch", *words, PATH=str(tmp_path))
    assert process.stdout
    line = (await asyncio.to_thread(process.stdout.readline)).decode()
    assert line.startswith("User can connect usbredir client at: 127.0.0.1:")
    assert await _first_line(int(line.rpartition(":")[2])) == b"RFB 003.008\n"
    await asyncio.to_thread(process.communicate, timeout=10)
    assert [path for _, path, _ in api.requests] == [_USB]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "accepts between 1 and 2 arg(s), received 0"),
        ("a b c", "accepts between 1 and 2 arg(s), received 3"),
        ("0951:1666", "Missing argument"),
    ],
)
def test_a_usb_device_and_a_guest_are_needed(virtctl: Virtctl, line: str, said: str) -> None:
    result = virtctl("usbredir", *line.split())
    assert (result.code, result.err) == (1, f"{said}\n")


def test_a_usb_client_that_does_not_connect_is_told(api: FakeServer, tmp_path: Path) -> None:
    api.stream = _greet
    _usb_client(tmp_path, "sys.exit(1)\n")
    _, errors = _start(api, "usbredir", "0951:1666", "vm", PATH=str(tmp_path)).communicate(timeout=15)
    assert errors == b"usbredirect ended before it connected\n"


def test_a_usb_device_that_cannot_be_given_is_told(api: FakeServer, tmp_path: Path) -> None:
    _, errors = _start(api, "usbredir", "0951:1666", "vm", PATH=str(tmp_path)).communicate(timeout=15)
    assert errors == (
        b'Error on finding usbredirect in $PATH: exec: "usbredirect": executable file not found in $PATH\n'
    )
    assert api.requests == []
    api.refuse("GET", _USB, 409, "Not configured with USB Redirection")
    process = _start(api, "usbredir", "--no-launch", "0951:1666", "vm", PATH=str(tmp_path))
    _, errors = process.communicate(timeout=15)
    assert errors == b"can't access VMI vm: Not configured with USB Redirection\n"


async def test_datagrams_of_each_client_have_a_stream_of_their_own(api: FakeServer) -> None:
    api.stream = _echo
    process = _start(api, "port-forward", "vmi/web", "udp/0:53")
    assert process.stderr
    try:
        line = await asyncio.to_thread(process.stderr.readline)
        port = int(line.split(b"127.0.0.1:")[1].split()[0])
        assert line == b"forwarding udp 127.0.0.1:%d to 53\n" % port

        def ask() -> list[bytes]:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
                own.settimeout(10)
                own.connect(("127.0.0.1", port))
                answers = []
                for question in (b"one", b"two"):
                    own.send(question)
                    answers.append(own.recv(100))
                return answers

        assert await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(2))) == [[b"<one>", b"<two>"]] * 2
    finally:
        process.kill()
        await asyncio.to_thread(process.communicate, timeout=10)
    path = f"{SUB}/default/virtualmachineinstances/web/portforward/53/udp"
    assert [found for _, found, _ in api.requests] == [path] * 2


@pytest.mark.feature("CTL-37")
def test_a_port_is_carried_over_standard_input_and_output(api: FakeServer) -> None:
    api.stream = _echo
    process = _start(api, "port-forward", "--stdio=true", "vm/web/ns", "22")
    assert process.stdin and process.stdout
    process.stdin.write(b"SSH-2.0")
    process.stdin.flush()
    _read_until(process.stdout, b"<SSH-2.0>")
    process.stdin.close()
    process.wait(10)
    assert api.requests[0][1] == f"{SUB}/ns/virtualmachines/web/portforward/22/tcp"
    process.stdout.close()
    assert process.stderr
    process.stderr.close()


async def test_a_local_port_leads_to_the_guests(api: FakeServer) -> None:
    api.stream = _greet
    process = _start(api, "port-forward", "vmi/web", "0:80")
    assert process.stderr
    line = (await asyncio.to_thread(process.stderr.readline)).decode()
    assert line.startswith("forwarding tcp 127.0.0.1:") and line.endswith(" to 80\n")
    port = int(line.split("127.0.0.1:")[1].split()[0])
    assert await _first_line(port) == b"RFB 003.008\n"
    process.terminate()
    await asyncio.to_thread(process.communicate, timeout=10)
    assert api.requests[0][1] == f"{SUB}/default/virtualmachineinstances/web/portforward/80/tcp"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("web 80", "target must contain type and name separated by '/'"),
        ("vm/ 80", "name cannot be empty"),
        ("vm/web/ 80", "namespace cannot be empty"),
        ("vm/web/a/b 80", "target is not valid with more than two '/'"),
        ("vm/web 70000", "listen tcp 127.0.0.1:70000: bind: invalid argument"),
        ("vm/web /80", "unknown protocol: "),
        ("vm/web tcp/udp/80", 'strconv.Atoi: parsing "udp": invalid syntax'),
        ("pod/web 80", "unsupported resource type 'pod'"),
        ("vm/web sctp/80", "unknown protocol: sctp"),
        ("vm/web 80:http", 'strconv.Atoi: parsing "http": invalid syntax'),
        ("vm/web 80 81 --stdio", "only one port supported when forwarding to stdout"),
    ],
)
def test_what_cannot_be_forwarded_is_told(virtctl: Virtctl, arguments: str, text: str) -> None:
    result = virtctl("port-forward", *arguments.split())
    assert (result.code, result.err) == (1, f"{text}\n")


@pytest.mark.parametrize("given", [[], ["vm/web"]])
def test_a_target_and_a_port_are_needed(virtctl: Virtctl, given: list[str]) -> None:
    result = virtctl("port-forward", *given)
    assert result.code == 1
    assert result.err == ("port-forward takes a target and at least one port\nargument validation failed\n")


@pytest.mark.feature("CTL-37")
def test_a_name_with_a_dot_may_end_with_the_namespace(api: FakeServer) -> None:
    """The form of OpenSSH's ``Host`` entries; a machine whose name has the dot comes first."""
    own = f"{SUB}/default/virtualmachines/web.lab/portforward/22/tcp"
    api.refuse("GET", own, 404, 'virtualmachine.kubevirt.io "web.lab" not found')
    api.stream = _say_good_bye
    process = _start(api, "port-forward", "--stdio=true", "vm/web.lab", "22")
    assert process.stdout is not None
    output = process.stdout.read(3)  # before the end of its input, at which it may end
    _, errors = process.communicate(timeout=15)
    assert (process.returncode, output) == (0, b"bye"), errors
    there = f"{SUB}/lab/virtualmachines/web/portforward/22/tcp"
    assert [path for _, path, _ in api.requests] == [own, there]


@pytest.mark.parametrize("kind", ["vm", "VMs", "virtualmachine", "virtualmachines"])
def test_a_target_has_a_kind_a_name_and_perhaps_a_namespace(kind: str) -> None:
    assert parse_target(f"{kind}/web", "own") == Target("virtualmachines", "web", "own")
    assert parse_target(f"{kind}/web/other", "own") == Target("virtualmachines", "web", "other")
    instances = "virtualmachineinstances"
    otherwise = Target(instances, "web", "a")
    assert parse_target("vmis/web.a", "own") == Target(instances, "web.a", "own", otherwise)
    with pytest.raises(click.ClickException):
        parse_target("vm/a/b/c", "own")


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("80", Port("tcp", 80, 80)),
        ("8080:80", Port("tcp", 8080, 80)),
        ("udp/53", Port("udp", 53, 53)),
        ("tcp/2222:22", Port("tcp", 2222, 22)),
        (":22", Port("tcp", 22, 22)),
        ("80:", Port("tcp", 80, 80)),
    ],
)
def test_a_port_is_local_and_remote(text: str, port: Port) -> None:
    assert parse_port(text) == port


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command line that virtctl became."""
    command: list[str] = []
    done = threading.Event()

    def become(program: str, arguments: list[str]) -> None:
        command.extend(arguments)
        done.set()

    monkeypatch.setattr(os, "execv", become)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setenv("USER", "me")
    return command


@pytest.mark.feature("ACC-18", "CTL-34")
def test_ssh_goes_through_a_forwarded_port(api: FakeServer, virtctl: Virtctl, became: list[str]) -> None:
    assert virtctl("-n", "ns", "ssh", "cloud-user@vm/web", "-i", "/keys/id", "-c", "uptime").code == 0
    assert became[0] == "ssh"
    assert became[-2:] == ["cloud-user@vm.web.ns", "uptime"]
    assert became[became.index("-i") + 1] == "/keys/id"
    proxy = shlex.split(became[became.index("-o") + 1].removeprefix("ProxyCommand="))
    assert proxy[-3:] == ["--stdio=true", "vm/web/ns", "22"]
    assert f"--server={api.url}" in proxy


@pytest.mark.feature("CTL-34")
def test_ssh_leaves_keys_and_users_to_openssh_when_none_are_named(
    virtctl: Virtctl, became: list[str]
) -> None:
    assert virtctl("ssh", "vmi/web", "-t", "-o StrictHostKeyChecking=no", "--known-hosts", "/k").code == 0
    assert "-i" not in became
    assert became[-1] == "me@vmi.web.default"
    # An option is one word for OpenSSH, as KubeVirt's virtctl passes it: its value may have spaces.
    assert "-o StrictHostKeyChecking=no" in became and "UserKnownHostsFile=/k" in became


@pytest.mark.feature("ACC-20", "CTL-35")
def test_a_file_is_copied_into_the_guest(virtctl: Virtctl, became: list[str]) -> None:
    assert virtctl("scp", "-i", "/keys/id", "notes.txt", "cloud-user@vm/web:/tmp").code == 0
    assert became[0] == "scp"
    assert became[-2:] == ["notes.txt", "cloud-user@vm.web.default:/tmp"]


@pytest.mark.feature("ACC-20", "CTL-36")
def test_a_file_is_copied_out_of_the_guest(virtctl: Virtctl, became: list[str]) -> None:
    assert virtctl("scp", "-r", "--preserve", "cloud-user@vm/web:notes.txt", ".").code == 0
    assert became[-2:] == ["cloud-user@vm.web.default:notes.txt", "."]
    assert "-r" in became and "-p" in became


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        (("vm/a:x", "vm/b:y"), "copying from a remote location to another remote location is not supported"),
        (("a", "b"), "none of the two provided locations seems to be a remote location"),
    ],
)
def test_one_end_of_a_copy_is_here_and_one_there(virtctl: Virtctl, ends: tuple[str, str], text: str) -> None:
    result = virtctl("scp", *ends)
    assert result.code == 1 and result.err.startswith(text)
