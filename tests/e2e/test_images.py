"""Images from a registry: through a mirror that the machine names, with the secret that it asks for."""

from __future__ import annotations

import base64
import json
import shutil
import tarfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Network
from pathlib import Path
from threading import Thread

import pytest
from tests.e2e.support import CORE, NAMESPACE, Cluster, Document, wait_for

pytestmark = [pytest.mark.host, pytest.mark.timeout(120)]

_REGISTRY = "registry.virtplane-e2e.example"
"""A name that leads nowhere: whatever comes from it came through the mirror."""
_USER, _PASSWORD = "reader", "s3cret"
_CREDENTIALS = base64.b64encode(f"{_USER}:{_PASSWORD}".encode()).decode()
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def serve(archive: Path, address: str) -> ThreadingHTTPServer:
    """A registry with the one image of an OCI archive, for those with the credentials."""
    with tarfile.open(archive) as tar:
        blobs = {
            "sha256:" + Path(name).name: (tar.extractfile(name) or pytest.fail(name)).read()
            for name in tar.getnames()
            if name.startswith("blobs/sha256/")
        }
        index = json.load(tar.extractfile("index.json") or pytest.fail("no index"))
    manifest = index["manifests"][0]["digest"]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rsplit("/", 1)[1].split("?")[0]
            digest = name if name.startswith("sha256:") else manifest
            if self.headers.get("Authorization") != f"Basic {_CREDENTIALS}":
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="registry"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body = blobs[digest]
            self.send_response(200)
            kind = _MANIFEST if digest == manifest else "application/octet-stream"
            self.send_header("Content-Type", kind)
            self.send_header("Docker-Content-Digest", digest)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the test asserts on what comes of the answers."""

    server = ThreadingHTTPServer((address, 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture
def mirror(cluster: Cluster) -> Iterator[None]:
    """A mirror on the machine, named in containerd's usual place, which is put back as it was."""
    layout = json.loads((cluster.state / "instance.json").read_text())
    gateway = str(IPv4Network(layout["subnet"]).network_address + 1)
    server = serve(cluster.state / "images/busybox.tar", gateway)
    folder = Path("/etc/containerd/certs.d")
    made = [path for path in (folder / _REGISTRY, folder, folder.parent) if not path.exists()]
    (folder / _REGISTRY).mkdir(parents=True)
    host = f'[host."http://{gateway}:{server.server_port}"]\ncapabilities = ["pull", "resolve"]\n'
    (folder / _REGISTRY / "hosts.toml").write_text(f'server = "https://{_REGISTRY}"\n{host}')
    yield
    server.shutdown()
    server.server_close()
    shutil.rmtree(folder / _REGISTRY)
    for path in made[1:]:
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
    auths = {"auths": {_REGISTRY: {"username": _USER, "password": _PASSWORD}}}
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
            return waiting.get("reason") in ("ErrImagePull", "ImagePullBackOff")

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
