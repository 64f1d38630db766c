"""The contract of KubeVirt's clients: websockets of the subresources API, and what virtctl makes of them."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from tests.e2e.clusters import CORE, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.commands import ROOT, attempt, program, run
from tests.e2e.failures import Document
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up
from tests.support.web import fetch_page, web_session

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(120)]

SUBPROTOCOL = "plain.kubevirt.io"
BASE = "/apis/subresources.kubevirt.io"
_DEFINITIONS = f"/apis/k8s.cni.cncf.io/v1/namespaces/{NAMESPACE}/network-attachment-definitions"
_BRIDGE, _NODE_ADDRESS, _GUEST_ADDRESS = "br-streams", "192.168.81.1", "192.168.81.99"


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SSH key, or a skip where OpenSSH is not installed."""
    if shutil.which("ssh") is None:
        pytest.skip("ssh is not installed")
    key = tmp_path_factory.mktemp("ssh") / "key"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    return key


@pytest.fixture(scope="module")
def network(cluster: Cluster) -> Iterator[str]:
    """A network beside that of pods: a bridge of the node, on which nobody gives addresses yet."""
    bridge = {"cniVersion": "1.0.0", "name": "lan", "type": "bridge", "bridge": _BRIDGE, "ipam": {}}
    definition: Document = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
    definition |= {"metadata": {"name": "lan"}, "spec": {"config": json.dumps(bridge)}}
    cluster.request("POST", _DEFINITIONS, definition)
    yield "lan"
    cluster.request("DELETE", f"{_DEFINITIONS}/lan")


@pytest.fixture(scope="module")
def guest(cluster: Cluster, identity: Path, network: str) -> Iterator[Machine]:
    """A guest that has booted, has its agent connected and knows the key."""
    wanted = manifest("streams", grace=1)
    spec = wanted["spec"]["template"]["spec"]
    spec["domain"]["devices"]["interfaces"].append({"name": network, "bridge": {}})
    spec["networks"].append({"name": network, "multus": {"networkName": network}})
    user_data = spec["volumes"][1]["cloudInitNoCloud"]
    public = identity.with_suffix(".pub").read_text().strip()
    user_data["userData"] += f"ssh_authorized_keys:\n  - {public}\n"
    made = cluster.create(wanted)
    try:
        made.wait_running()
        wait_for("the agent is connected", lambda: made.condition("AgentConnected") == "True", 60)
        yield made
    finally:
        clean_up([made])


@pytest.fixture(scope="module")
def halted(cluster: Cluster) -> Iterator[Machine]:
    """A machine without an instance."""
    made = cluster.create(manifest("halted", strategy="Halted"))
    yield made
    clean_up([made])


class Api:
    """Raw websockets of the administrator."""

    def __init__(self, cluster: Cluster) -> None:
        self.tls = ssl.create_default_context(cafile=str(cluster.state / "pki/ca.crt"))
        self.tls.load_cert_chain(cluster.state / "pki/admin.crt", cluster.state / "pki/admin.key")
        port = json.loads((cluster.state / "instance.json").read_text())["api_port"]
        self.server = f"https://127.0.0.1:{port}"

    def path(
        self, name: str, action: str, *, kind: str = "virtualmachineinstances", version: str = "v1"
    ) -> str:
        """The URL of an action."""
        return f"{self.server}{BASE}/{version}/namespaces/default/{kind}/{name}/{action}"

    @asynccontextmanager
    async def connect(self, url: str, *protocols: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A websocket."""
        async with (
            web_session() as session,
            session.ws_connect(url, protocols=protocols, ssl=self.tls, max_msg_size=0) as socket,
        ):
            yield socket


@pytest.fixture
def api(cluster: Cluster) -> Api:
    """Websockets of the cluster."""
    return Api(cluster)


async def receive(socket: aiohttp.ClientWebSocketResponse, mark: bytes, seconds: float = 20) -> bytes:
    """Bytes up to and with `mark`; every message must be binary."""
    seen = b""
    while mark not in seen:
        message = await socket.receive(seconds)
        assert message.type == aiohttp.WSMsgType.BINARY, (message, seen)
        seen += message.data
    return seen


@pytest.mark.parametrize("version", ["v1", "v1alpha3"])
@pytest.mark.parametrize("protocols", [(SUBPROTOCOL,), ()])
async def test_the_console_is_a_plain_byte_stream_with_and_without_the_subprotocol(
    api: Api, guest: Machine, protocols: tuple[str, ...], version: str
) -> None:
    url = api.path("streams", "console", version=version)
    async with api.connect(url, *protocols) as socket:
        assert socket.protocol == (SUBPROTOCOL if protocols else None)
        await socket.send_bytes(b"\n")
        assert await receive(socket, b"streams login: ")


async def test_the_display_speaks_rfb(api: Api, guest: Machine) -> None:
    url = api.path("streams", "vnc")
    async with api.connect(url, SUBPROTOCOL) as socket:
        assert await receive(socket, b"\n") == b"RFB 003.008\n"


@pytest.mark.parametrize("kind", ["virtualmachineinstances", "virtualmachines"])
@pytest.mark.parametrize("port", ["80", "80/tcp"])
async def test_a_forwarded_port_carries_bytes_until_the_guest_ends(
    api: Api, guest: Machine, kind: str, port: str
) -> None:
    url = api.path("streams", f"portforward/{port}", kind=kind)
    async with api.connect(url, SUBPROTOCOL) as socket:
        await socket.send_bytes(b"GET / HTTP/1.0\r\n\r\n")
        assert b" 200 " in await receive(socket, b"streams is up\n")
        assert (await socket.receive(20)).type == aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 1000


@pytest.mark.parametrize(
    ("name", "action", "kind", "code", "said"),
    [
        (
            "none",
            "console",
            "virtualmachineinstances",
            404,
            'virtualmachineinstance.kubevirt.io "none" not found',
        ),
        (
            "none",
            "vnc",
            "virtualmachineinstances",
            404,
            'virtualmachineinstance.kubevirt.io "none" not found',
        ),
        ("halted", "portforward/80", "virtualmachines", 409, "VMI is not started"),
        ("streams", "usbredir", "virtualmachineinstances", 409, "Not configured with USB Redirection"),
        ("streams", "vsock?port=1", "virtualmachineinstances", 400, "VSOCK is not attached."),
        ("streams", "portforward/9", "virtualmachineinstances", 500, "dialing VM: "),
    ],
)
async def test_refused_streams_are_http_errors(
    api: Api, guest: Machine, halted: Machine, name: str, action: str, kind: str, code: int, said: str
) -> None:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Protocol": SUBPROTOCOL,
    }
    async with (
        web_session() as session,
        session.get(api.path(name, action, kind=kind), headers=headers, ssl=api.tls) as answer,
    ):
        status: Document = await answer.json()
        assert (answer.status, status["kind"], status["code"]) == (code, "Status", code)
        assert said in status["message"]


@pytest.mark.parametrize("action", ["guestosinfo", "userlist", "filesystemlist"])
async def test_questions_to_the_agent_fail_as_plain_text(api: Api, halted: Machine, action: str) -> None:
    async with (
        web_session() as session,
        session.get(api.path("halted", action), ssl=api.tls) as answer,
    ):
        assert answer.status == 500
        assert await answer.text() == 'virtualmachineinstance.kubevirt.io "halted" not found'


# virtctl.


def virtctl(machine: Machine, *arguments: str) -> subprocess.CompletedProcess[str]:
    """virtctl, whatever comes of it."""
    return attempt(program("virtctl"), *arguments, seconds=60, env=machine.cluster.environment)


@pytest.mark.parametrize("target", ["vmi/streams", "vm/streams", "vmis/streams/default"])
def test_virtctl_forwards_a_local_port(guest: Machine, target: str) -> None:
    command = [str(program("virtctl")), "port-forward", target, "0:80"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=guest.cluster.environment
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().split("127.0.0.1:")[1].split()[0])
            assert fetch_page(f"http://127.0.0.1:{port}/", 20) == b"streams is up\n"
        finally:
            process.kill()


def test_virtctl_forwards_to_its_own_standard_streams(guest: Machine) -> None:
    command = [str(program("virtctl")), "port-forward", "--stdio", "vmi/streams", "22"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=guest.cluster.environment) as process:
        try:
            assert process.stdin is not None and process.stdout is not None
            assert process.stdout.readline().startswith(b"SSH-2.0-dropbear")
            process.stdin.close()
            assert process.wait(10) == 0
        finally:
            process.kill()


@pytest.mark.feature("ACC-18")
def test_virtctl_runs_commands_in_the_guest_by_ssh(guest: Machine, identity: Path, tmp_path: Path) -> None:
    known = str(tmp_path / "known")
    options = ("-i", str(identity), "--known-hosts", known, "-t", "-oStrictHostKeyChecking=accept-new")
    done = virtctl(guest, "ssh", "root@vmi/streams", *options, "--command", "hostname; exit 7")
    assert (done.stdout, done.returncode) == ("streams\n", 7), done.stderr


@pytest.fixture
def exposed(cluster: Cluster) -> Iterator[Callable[[str], Document]]:
    """Makes services of a type for the guest's SSH as virtctl does; they are deleted afterwards."""
    made: list[str] = []

    def expose(kind: str) -> Document:
        name = f"ssh-{kind.lower()}"
        options = ("--name", name, "--type", kind, "--port", "22")
        assert f"Service {name} successfully created" in cluster.virtctl("expose", "vm", "streams", *options)
        made.append(f"{CORE}/namespaces/{NAMESPACE}/services/{name}")
        return cluster.request("GET", made[-1])

    yield expose
    for path in made:
        cluster.request("DELETE", path)


@pytest.mark.feature("ACC-22", "ACC-26")
@pytest.mark.parametrize("kind", ["ClusterIP", "NodePort"])
def test_openssh_reaches_the_guest_by_a_service_of_virtctl(
    guest: Machine, identity: Path, tmp_path: Path, exposed: Callable[[str], Document], kind: str
) -> None:
    spec = exposed(kind)["spec"]
    address, port = spec["clusterIP"], 22
    if kind == "NodePort":
        (node, *_) = guest.cluster.items(f"{CORE}/nodes")
        # The first is of the service's family.
        addresses = (each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP")
        address, port = next(addresses), spec["ports"][0]["nodePort"]
    options = ("-i", identity, f"-oUserKnownHostsFile={tmp_path / 'known'}", "-oStrictHostKeyChecking=no")
    command = ("ssh", *options, "-oBatchMode=yes", f"root@{address}", "-p", str(port), "hostname")

    def reached() -> bool:
        return attempt(*command).stdout == "streams\n"

    wait_for("the service leads there", reached, 20)


@pytest.mark.feature("ACC-21", "CTL-37")
@pytest.mark.parametrize("host", ["vm/streams.default", "vmi/streams/default"])
def test_openssh_reaches_the_guest_by_its_own_configuration(
    guest: Machine, identity: Path, tmp_path: Path, host: str
) -> None:
    config = tmp_path / "config"
    settings = {
        "ProxyCommand": f"{program('virtctl')} port-forward --stdio=true %h %p",
        "User": "root",
        "IdentityFile": identity,
        "UserKnownHostsFile": tmp_path / "known",
        "StrictHostKeyChecking": "accept-new",
    }
    lines = ["Host vm/* vmi/*", *(f"  {name} {value}" for name, value in settings.items())]
    config.write_text("\n".join(lines) + "\n")
    command = ("ssh", "-F", config, host, "hostname; exit 7")
    done = attempt(*command, env=guest.cluster.environment)
    assert (done.stdout, done.returncode) == ("streams\n", 7), done.stderr


@pytest.mark.feature("CTL-35", "CTL-36")
def test_virtctl_copies_files_to_the_guest_and_back(guest: Machine, identity: Path, tmp_path: Path) -> None:
    known = str(tmp_path / "known")
    options = ("-i", str(identity), "--known-hosts", known, "-t", "-oStrictHostKeyChecking=accept-new")
    (tmp_path / "sent").write_bytes(bytes(range(256)) * 4096)
    there = virtctl(guest, "scp", *options, str(tmp_path / "sent"), "root@vmi/streams:/tmp/copied")
    assert there.returncode == 0, there.stderr
    back = virtctl(guest, "scp", *options, "root@vmi/streams:/tmp/copied", str(tmp_path / "received"))
    assert back.returncode == 0, back.stderr
    assert (tmp_path / "received").read_bytes() == (tmp_path / "sent").read_bytes()


def test_virtctl_takes_a_picture_of_the_display(guest: Machine, tmp_path: Path) -> None:
    done = virtctl(guest, "vnc", "screenshot", "streams", "--file", str(tmp_path / "display.png"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "display.png").read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.feature("CTL-09", "CTL-10", "CTL-11", "VMC-93")
def test_virtctl_shows_what_the_agent_tells_as_indented_json(guest: Machine) -> None:
    told = virtctl(guest, "guestosinfo", "streams")
    assert told.stdout.startswith('{\n  "')
    assert json.loads(told.stdout)["hostname"] == "streams"
    for command in ("userlist", "fslist"):
        told = virtctl(guest, command, "streams")
        assert list(json.loads(told.stdout)) == ["metadata", "items"]


@pytest.fixture
def leases(cluster: Cluster, guest: Machine, tmp_path: Path) -> Iterator[list[str]]:
    """DHCP on the other network; the command that runs others beside it."""
    in_node = ["nsenter", f"--net={cluster.state / 'nodes/node01/ns/net'}"]
    run(*in_node, "ip", "addr", "replace", f"{_NODE_ADDRESS}/24", "dev", _BRIDGE)
    command = [*in_node, sys.executable, "-m", "tests.support.netboot", _BRIDGE, _NODE_ADDRESS]
    with subprocess.Popen([*command, _GUEST_ADDRESS, str(tmp_path)], cwd=ROOT) as server:
        yield in_node
        server.kill()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.feature("ACC-23", "ACC-24", "VMC-93")
def test_a_guest_is_reached_by_ssh_at_the_address_that_it_got_on_another_network(
    guest: Machine, identity: Path, tmp_path: Path, leases: list[str]
) -> None:
    def told() -> list[list[str]]:
        text = guest.cluster.kubectl("describe", "vmi", "streams")
        lines = [line.split(maxsplit=1) for line in text.partition("Interfaces:")[2].splitlines()]
        return lines if _GUEST_ADDRESS in text.partition("Status:")[2] else []

    lines = wait_for("the address is told", told, 60)
    (card,) = (each for each in (guest.instance() or {})["status"]["interfaces"] if each["name"] == "lan")
    assert (card["ipAddress"], card["interfaceName"]) == (_GUEST_ADDRESS, "eth1")
    words = [" ".join(line) for line in lines]
    for key, value in (("Interface Name", "eth1"), ("Mac", card["mac"]), ("Name", "lan")):
        assert any(line.startswith(f"{key}:") and line.endswith(f" {value}") for line in words), words
    assert any(line.startswith("Ip Address:") and line.endswith(f" {_GUEST_ADDRESS}") for line in words)
    assert any(line.startswith("Ip Addresses:") for line in words)
    options = ("-i", identity, f"-oUserKnownHostsFile={tmp_path / 'known'}", "-oStrictHostKeyChecking=no")
    done = run(*leases, "ssh", *options, "-oBatchMode=yes", f"root@{_GUEST_ADDRESS}", "hostname")
    assert done.stdout == "streams\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("guestosinfo none", "Error getting guestosinfo of VirtualMachineInstance none, "),
        ("userlist none", "Error listing users of VirtualMachineInstance none, "),
        ("fslist none", "Error listing filesystems of VirtualMachineInstance none, "),
        ("console none", 'virtualmachineinstance.kubevirt.io "none" not found'),
        ("vnc none --proxy-only", "can't access VMI none: "),
        (
            "start streams",
            "Error starting VirtualMachine Operation cannot be fulfilled on virtualmachine.kubevirt.io",
        ),
        (
            "stop halted",
            "error stopping VirtualMachine Operation cannot be fulfilled on virtualmachine.kubevirt.io",
        ),
        ("restart streams --force", "Must both use --force=true and set --grace-period."),
        (
            "pause vm halted",
            "Error pausing VirtualMachineInstance halted. VirtualMachine halted is not set to run",
        ),
        ("pause vmi none", "Error pausing VirtualMachineInstance none"),
        ("soft-reboot none", "Error soft rebooting VirtualMachineInstance none: "),
        ("port-forward streams 80", "target must contain type and name separated by '/'"),
        ("port-forward pod/streams 80", "unsupported resource type 'pod'"),
        ("port-forward vmi/streams icmp/80", "unknown protocol: icmp"),
        ("port-forward --stdio vmi/streams 80 81", "only one port supported when forwarding to stdout"),
    ],
)
def test_virtctl_fails_with_kubevirts_words(guest: Machine, halted: Machine, command: str, said: str) -> None:
    done = virtctl(guest, *command.split())
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stdout == ""
