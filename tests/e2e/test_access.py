"""Ways into a running guest and its pod."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.e2e.clusters import NAMESPACE, Cluster, Machine, manifest
from tests.e2e.commands import attempt, program
from tests.e2e.support import open_console, wait_for
from tests.support.clusters import clean_up
from tests.support.web import fetch_page

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(120)]

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@pytest.fixture(scope="module")
def guest(cluster: Cluster) -> Iterator[Machine]:
    """A guest that has booted."""
    machine = cluster.create(manifest("access"))
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


@pytest.mark.feature("ACC-04", "CTL-32")
def test_the_vnc_proxy_prints_its_port_and_speaks_rfb(guest: Machine) -> None:
    command = (program("virtctl"), "vnc", "access", "--proxy-only")
    with background(*command, env=guest.cluster.environment) as proxy:
        assert proxy.stdout is not None
        port = json.loads(proxy.stdout.readline())["port"]
        with socket.create_connection(("127.0.0.1", port), timeout=10) as display:
            assert display.recv(12) == b"RFB 003.008\n"
            display.sendall(b"RFB 003.008\n")
            offered = display.recv(1)
            assert offered and offered[0] >= 1  # The number of security types.


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
