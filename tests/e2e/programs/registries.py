"""docker-registry in a Deployment with a claim, and a client that pushes and pulls through its HTTP API."""

from __future__ import annotations

import hashlib
import json
import urllib.request
from dataclasses import dataclass
from urllib.parse import urljoin

from tests.e2e.failures import Document
from tests.e2e.programs.manifests import (
    claim,
    claimed,
    configured,
    container,
    deployment,
    document,
    pod_spec,
    service,
)

NAME, PORT = "registry", 5000
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIGURATION = {
    "version": 0.1,
    "storage": {"filesystem": {"rootdirectory": "/data"}},
    "http": {"addr": f":{PORT}"},
}
_SECONDS = 10


def manifests() -> list[Document]:
    """What runs it, behind a load balancer."""
    only = container(
        NAME,
        "exec docker-registry serve /etc/programs/config.yml",
        ready={"httpGet": {"path": "/v2/", "port": PORT}},
        mounts={"data": "/data", "configuration": "/etc/programs"},
    )
    spec = pod_spec(only, group="app", volumes=[claimed(NAME), configured(NAME)])
    return [
        claim(NAME),
        document("ConfigMap", NAME, data={"config.yml": json.dumps(_CONFIGURATION)}),
        deployment(NAME, 1, spec, strategy={"type": "Recreate"}),
        service(NAME, PORT, type="LoadBalancer"),
    ]


@dataclass(frozen=True)
class Client:
    """Pushes to and pulls from the registry at an address of the machine's network."""

    address: str

    def push(self, repository: str, layer: bytes) -> None:
        """Push an image of one layer as ``latest``. Raises OSError."""
        blobs = [b'{"architecture": "amd64", "os": "linux"}', layer]
        for blob in blobs:
            _, location = self._request("POST", f"/v2/{repository}/blobs/uploads/")
            separator = "&" if "?" in location else "?"
            target = f"{location}{separator}digest={_digest(blob)}"
            self._request("PUT", target, blob, "application/octet-stream")
        configuration, content = (
            {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}
            for kind, blob in zip(
                ("application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar"),
                blobs,
                strict=True,
            )
        )
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": configuration, "layers": [content]}
        self._request("PUT", f"/v2/{repository}/manifests/latest", json.dumps(manifest).encode(), _MANIFEST)

    def pull(self, repository: str) -> bytes:
        """The layer of the image ``latest``, whose digest is checked. Raises OSError."""
        manifest, _ = self._request("GET", f"/v2/{repository}/manifests/latest")
        (wanted,) = json.loads(manifest)["layers"]
        layer, _ = self._request("GET", f"/v2/{repository}/blobs/{wanted['digest']}")
        assert _digest(layer) == wanted["digest"]
        return layer

    def _request(
        self, method: str, path: str, body: bytes | None = None, kind: str = ""
    ) -> tuple[bytes, str]:
        host = f"[{self.address}]" if ":" in self.address else self.address
        url = urljoin(f"http://{host}:{PORT}/", path)
        headers = {"Accept": _MANIFEST} | ({"Content-Type": kind} if kind else {})
        request = urllib.request.Request(url, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            return answer.read(), answer.headers.get("Location", "")


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"
