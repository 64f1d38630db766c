"""Images from a registry: through a mirror that the machine names, with the secret that it asks for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.clusters import CORE, NAMESPACE, Cluster
from tests.e2e.commands import ROOT
from tests.e2e.failures import Document
from tests.e2e.support import wait_for
from tests.support import registry

pytestmark = [pytest.mark.host, pytest.mark.timeout(120)]

_REGISTRY = "registry.virtplane-e2e.example"
"""A name that leads nowhere: whatever comes from it came through the mirror."""


@pytest.fixture
def mirror(cluster: Cluster) -> Iterator[None]:
    """A mirror in the node, named in containerd's usual place, which is put back as it was."""
    folder = Path("/etc/containerd/certs.d")
    made = [path for path in (folder, folder.parent) if not path.exists()]
    (folder / _REGISTRY).mkdir(parents=True)
    # Nodes reach nothing of the machine, so it listens where they do.
    inside = ["nsenter", f"--net={cluster.state}/nodes/node01/ns/net"]
    command = [*inside, sys.executable, "-m", "tests.support.registry"]
    archive = cluster.state / "images/busybox.tar"
    with subprocess.Popen(
        [*command, str(archive)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
    ) as serving:
        try:
            assert serving.stdout is not None
            host = f'[host."http://127.0.0.1:{int(serving.stdout.readline())}"]\n'
            (folder / _REGISTRY / "hosts.toml").write_text(
                f'server = "https://{_REGISTRY}"\n{host}capabilities = ["pull", "resolve"]\n'
            )
            yield
        finally:
            serving.kill()
            shutil.rmtree(folder / _REGISTRY)
            for path in made:
                path.rmdir()


def pod(name: str, *, secret: str = "") -> Document:
    # An image of its own for each pod: nodes wait before they try one again that could not be pulled.
    container = {"name": "main", "image": f"{_REGISTRY}/busybox:{name}", "command": ["sleep", "600"]}
    secrets = {"imagePullSecrets": [{"name": secret}]} if secret else {}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **secrets},
    }


def test_an_image_comes_through_the_mirror_with_the_secret_of_its_registry(
    cluster: Cluster, mirror: None
) -> None:
    pods = f"{CORE}/namespaces/{NAMESPACE}/pods"
    secrets = f"{CORE}/namespaces/{NAMESPACE}/secrets"
    auths = {"auths": {_REGISTRY: {"username": registry.USER, "password": registry.PASSWORD}}}
    secret = {
        "metadata": {"name": "registry"},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": json.dumps(auths)},
    }
    cluster.request("POST", secrets, secret)
    try:
        cluster.request("POST", pods, pod("without-secret"))

        def refused() -> bool:
            states = cluster.request("GET", f"{pods}/without-secret")["status"].get("containerStatuses", [])
            waiting = states[0]["state"].get("waiting", {}) if states else {}
            return "401 Unauthorized" in waiting.get("message", "")

        wait_for("the registry refuses whoever has no secret", refused, 30)
        cluster.request("POST", pods, pod("with-secret", secret="registry"))

        def runs() -> bool:
            phase: str = cluster.request("GET", f"{pods}/with-secret")["status"]["phase"]
            return phase == "Running"

        wait_for("the image came through the mirror", runs, 30)
    finally:
        for name in ("without-secret", "with-secret"):
            if cluster.find(f"{pods}/{name}") is not None:
                cluster.request("DELETE", f"{pods}/{name}")
        cluster.request("DELETE", f"{secrets}/registry")
