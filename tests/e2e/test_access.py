"""Ways into a running guest and its pod."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.clusters import CORE, KUBEVIRT, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.commands import attempt, program
from tests.e2e.failures import ApiError
from tests.e2e.support import open_console, wait_for
from tests.support.clusters import clean_up
from tests.support.web import fetch_page

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(120)]

_INSTALLATION = f"{KUBEVIRT}/namespaces/kubevirt/kubevirts/kubevirt"
_TOKEN_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1.token.kubevirt.io"

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@pytest.fixture(scope="module")
def guest(cluster: Cluster) -> Iterator[Machine]:
    """A guest that has booted, with devices that older drivers know, too."""
    wanted = manifest("access")
    wanted["spec"]["template"]["spec"]["domain"]["devices"]["useVirtioTransitional"] = True
    machine = cluster.create(wanted)
    try:
        machine.wait_running()
        yield machine
    finally:
        clean_up([machine])


@contextmanager
def background(*command: object, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A command that is ended at the end."""
    words = [str(word) for word in command]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def get(url: str) -> str:
    """The body behind a URL."""
    return fetch_page(url, 5).decode()


@pytest.mark.feature("ACC-14", "CTL-30")
def test_the_console_shows_a_login_prompt_and_commands_typed_there_answer(guest: Machine) -> None:
    with open_console(guest) as console:
        console.expect("Successfully connected to access console", 20)
        console.log_in()
        assert console.run("hostname") == "access"
        assert console.run("echo $((6 * 7))") == "42"
        assert console.leave() == 0


@pytest.mark.feature("VMC-94")
def test_disk_entropy_and_network_are_the_devices_that_windows_drivers_are_for(guest: Machine) -> None:
    with guest.console() as console:
        shown = console.run("cd /sys/bus/pci/devices; for d in *; do cat $d/vendor $d/device; done; cd")
    words = shown.split()
    found = set(zip(words[::2], words[1::2], strict=True))
    # viostor, viorng and NetKVM, by their identifiers in the list of drivers.
    assert {("0x1af4", "0x1001"), ("0x1af4", "0x1005"), ("0x1af4", "0x1000")} <= found


@pytest.mark.feature("ACC-04", "CTL-32")
def test_the_vnc_proxy_prints_its_port_and_speaks_rfb(guest: Machine) -> None:
    command = (program("virtctl"), "vnc", "access", "--proxy-only")
    with background(*command, env=guest.cluster.environment) as proxy:
        assert proxy.stdout is not None
        port = json.loads(proxy.stdout.readline())["port"]
        greet_display(port)


def greet_display(port: int) -> None:
    """Begin to speak RFB with a guest's display at a port of this machine."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as display:
        assert display.recv(12) == b"RFB 003.008\n"
        display.sendall(b"RFB 003.008\n")
        offered = display.recv(1)
        assert offered and offered[0] >= 1  # The number of security types.


@pytest.fixture
def tokens(cluster: Cluster) -> Iterator[None]:
    """Tokens for displays are offered; afterwards all is as before."""
    configuration = cluster.request("GET", _INSTALLATION)["spec"].get("configuration") or {}
    before = (configuration.get("developerConfiguration") or {}).get("featureGates")

    def configure(names: list[str] | None) -> None:
        developer = {"developerConfiguration": {"featureGates": names}}
        cluster.request("PATCH", _INSTALLATION, {"spec": {"configuration": developer}})

    configure([*(before or []), "DeployVmConsoleProxy"])
    wait_for("tokens are offered", lambda: attempt_token(cluster, "access"), 60)
    yield
    configure(before)
    wait_for("tokens are no longer offered", lambda: cluster.find(_TOKEN_SERVICE) is None, 60)


def attempt_token(cluster: Cluster, machine: str) -> str | None:
    """A token for a machine's display; None while the group is not served."""
    path = f"/apis/token.kubevirt.io/v1alpha1/namespaces/{NAMESPACE}/virtualmachines/{machine}/vnc"
    try:
        return str(cluster.request("GET", f"{path}?duration=1h")["token"])
    except ApiError as error:
        if error.code in (404, 503):
            return None
        raise


def holder(cluster: Cluster, token: str, folder: Path) -> dict[str, str]:
    """The environment of somebody who has nothing but a token."""
    port = json.loads((cluster.state / "instance.json").read_text())["api_port"]
    server = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority": str(cluster.state / "pki/ca.crt"),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": server}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}],
        "current-context": "x",
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(config))
    return {**os.environ, "KUBECONFIG": str(file)}


@pytest.mark.usefixtures("tokens")
@pytest.mark.feature("ACC-07", "ACC-08", "ACC-10", "ACC-11")
def test_a_token_opens_the_display_of_its_guest_alone_until_it_is_revoked(
    cluster: Cluster, guest: Machine, tmp_path: Path
) -> None:
    token = attempt_token(cluster, guest.name)
    assert token is not None
    environment = holder(cluster, token, tmp_path)
    command = (program("virtctl"), "vnc", guest.name, "--proxy-only")
    with background(*command, env=environment) as proxy:
        assert proxy.stdout is not None
        port = json.loads(proxy.stdout.readline())["port"]
        greet_display(port)
    other = cluster.create(manifest("other", strategy="Halted"))
    try:
        assert attempt_token(cluster, "other") is not None
        for word, action in (("other", "vnc"), (guest.name, "console"), (guest.name, "pause")):
            words = (action, "vm", word) if action == "pause" else (action, word)
            refused = attempt(program("virtctl"), *words, env=environment)
            assert refused.returncode != 0 and "forbidden" in refused.stderr, refused.stderr
        cluster.request("DELETE", f"{CORE}/namespaces/{NAMESPACE}/serviceaccounts/access-vnc-access")
        refused = attempt(*command, env=environment)
        assert refused.returncode != 0 and "nauthorized" in refused.stderr, refused.stderr
    finally:
        clean_up([other])
    account = f"{CORE}/namespaces/{NAMESPACE}/serviceaccounts/other-vnc-access"
    wait_for("the account goes with its machine", lambda: cluster.find(account) is None, 30)


@pytest.mark.feature("NET-01", "NET-02")
def test_http_to_the_guest_answers_at_the_pods_address(guest: Machine) -> None:
    address = guest.address()
    assert address == guest.pod()["status"]["podIP"]
    page = wait_for("the guest's web server answers", lambda: get(f"http://{address}/"), 40)
    assert page.strip() == "access is up"


@pytest.mark.feature("VMC-91", "CTL-10")
def test_the_guest_agent_is_connected_and_tells_the_guests_system(guest: Machine) -> None:
    wait_for("the agent is connected", lambda: guest.condition("AgentConnected") == "True", 40)
    told = json.loads(guest.cluster.virtctl("guestosinfo", "access"))
    assert told["os"]["id"] == "virtplane-guest"
    assert told["hostname"] == "access"
    instance = guest.instance()
    assert instance is not None
    assert instance["status"]["guestOSInfo"]["id"] == "virtplane-guest"
    assert instance["status"]["interfaces"][0]["interfaceName"] == "eth0"


@needs_kubectl
def test_kubectl_runs_commands_in_the_launcher_pod(guest: Machine) -> None:
    name = guest.pod()["metadata"]["name"]
    answer = guest.cluster.kubectl("exec", "-n", NAMESPACE, name, "-c", "compute", "--", "id", "-u")
    assert answer.strip() == "107"


@needs_kubectl
def test_kubectl_shows_the_guests_serial_console_as_a_log(guest: Machine) -> None:
    name = guest.pod()["metadata"]["name"]
    log = guest.cluster.kubectl("logs", "-n", NAMESPACE, name, "-c", "guest-console-log")
    assert "login:" in log
    guest.cluster.kubectl("logs", "-n", NAMESPACE, name, "-c", "compute")


@needs_kubectl
def test_kubectl_forwards_a_port_to_the_guest(guest: Machine) -> None:
    name = guest.pod()["metadata"]["name"]
    command = ("kubectl", "port-forward", "-n", NAMESPACE, f"pod/{name}", ":80")
    with background(*command, env=guest.cluster.environment) as forward:
        assert forward.stdout is not None
        port = int(forward.stdout.readline().split("->")[0].rpartition(":")[2])
        page = wait_for("the forwarded port answers", lambda: get(f"http://127.0.0.1:{port}/"), 20)
    assert page.strip() == "access is up"


@needs_kubectl
def test_kubectl_prints_machines_and_instances_in_columns(guest: Machine) -> None:
    header, line = guest.cluster.kubectl("get", "vm", "access").splitlines()
    assert header.split() == ["NAME", "AGE", "STATUS", "READY"]
    assert (line.split()[0], line.split()[2:]) == ("access", ["Running", "True"])
    header, line = guest.cluster.kubectl("get", "vmi", "access").splitlines()
    assert header.split() == ["NAME", "AGE", "PHASE", "IP", "NODENAME", "READY"]
    assert line.split()[2:] == ["Running", guest.address(), "node01", "True"]


@pytest.mark.feature("ACC-06")
def test_a_second_console_takes_over_from_the_first(guest: Machine) -> None:
    with open_console(guest) as first:
        first.log_in()
        with guest.console() as second:
            assert second.run("echo taken over") == "taken over"
            assert first.process.wait(10) == 1


def test_a_second_display_is_refused_where_the_first_is_to_be_preserved(guest: Machine) -> None:
    command = (program("virtctl"), "vnc", "access", "--proxy-only")
    with background(*command, env=guest.cluster.environment) as first:
        assert first.stdout is not None
        first.stdout.readline()
        refused = attempt(*command, "--preserve-session", env=guest.cluster.environment)
    assert refused.returncode != 0
    assert "an't access VMI access" in refused.stderr
