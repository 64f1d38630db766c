"""A disk in every format and packing, made on the spot, and a server of the distribution that has them."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import random
import subprocess
import tarfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from ssl import CERT_NONE, create_default_context

import trustme
from tests.e2e.clusters import CORE, NAMESPACE, Cluster
from tests.e2e.commands import run
from tests.e2e.failures import Document
from tests.e2e.programs.manifests import claimed, configured, container, deployment, document, pod_spec
from tests.e2e.support import wait_for

MIB = 1 << 20
SIZE = 24 * MIB
NAME = "images"
HOST = f"{NAME}.{NAMESPACE}.svc.cluster.local"
PLAIN_PORT, TLS_PORT = 8080, 8443
USER, PASSWORD = "reader", "secret word"
DATA_VOLUMES = f"/apis/cdi.kubevirt.io/v1beta1/namespaces/{NAMESPACE}/datavolumes"
_TOKENS = f"/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/{NAMESPACE}/uploadtokenrequests"
_SECONDS = 60
_NGINX = f"""\
pid /tmp/nginx.pid;
events {{}}
http {{
    access_log off;
    root /data;
    server {{
        listen {PLAIN_PORT}; listen [::]:{PLAIN_PORT};
        location = /ready {{ return 200; }}
        location /whole/ {{ alias /data/; max_ranges 0; }}
        location /moved/ {{ rewrite ^/moved/(.*)$ /$1 redirect; }}
        location /broken/ {{ return 500; }}
        location /kept/ {{ return 403; }}
    }}
    server {{
        listen {TLS_PORT} ssl; listen [::]:{TLS_PORT} ssl;
        ssl_certificate /etc/programs/tls.crt;
        ssl_certificate_key /etc/programs/tls.key;
        auth_basic "images";
        auth_basic_user_file /etc/programs/users;
    }}
}}
"""

FORMATS = ("qcow2", "vmdk", "vdi", "vpc", "vhdx")
PACKERS = {"gz": ["gzip", "-1"], "xz": ["xz", "-0"], "zst": ["zstd", "-q"], "bz2": ["bzip2", "-1"]}


@dataclass(frozen=True)
class Disks:
    """The files, by name, and the disk that is in each of them."""

    folder: Path
    content: bytes

    @property
    def names(self) -> list[str]:
        """The names of all files."""
        return sorted(path.name for path in self.folder.iterdir())

    def archive(self) -> bytes:
        """All files as a tar."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for name in self.names:
                tar.add(self.folder / name, name)
        return packed.getvalue()


def make_disks(folder: Path) -> Disks:
    """Make the disk in every format and packing."""
    chance = random.Random("disks")
    content = bytearray(SIZE)
    for start, size in ((0, 3 * MIB), (10 * MIB, 2 * MIB), (SIZE - MIB, MIB)):
        content[start : start + size] = chance.randbytes(size)
    raw = folder / "disk.raw"
    raw.write_bytes(content)
    for name in FORMATS:
        options = ["-o", "subformat=streamOptimized"] if name == "vmdk" else []
        options = ["-o", "force_size=on"] if name == "vpc" else options
        run("qemu-img", "convert", "-f", "raw", "-O", name, *options, raw, folder / f"disk.{name}")
    run("qemu-img", "convert", "-c", "-f", "raw", "-O", "qcow2", raw, folder / "packed.qcow2")
    for name in (raw.name, "disk.qcow2"):
        for suffix, command in PACKERS.items():
            with (folder / name).open("rb") as source, (folder / f"{name}.{suffix}").open("wb") as packed:
                subprocess.run([*command, "-c"], stdin=source, stdout=packed, check=True)
    with tarfile.open(folder / "disk.ova", "w") as tar:
        for name in ("disk.ovf", "disk.vmdk"):
            if name == "disk.ovf":
                info = tarfile.TarInfo(name)
                info.size = len(text := b"<Envelope/>")
                tar.addfile(info, io.BytesIO(text))
            else:
                tar.add(folder / name, name)
    return Disks(folder, bytes(content))


def server(authority: trustme.CA) -> list[Document]:
    """nginx that serves the claim `NAME`: plainly, without ranges, and by TLS to those with the password."""
    certificate = authority.issue_cert(HOST)
    users = f"{USER}:{{PLAIN}}{PASSWORD}\n"
    data = {
        "nginx.conf": _NGINX,
        "users": users,
        "tls.crt": b"".join(each.bytes() for each in certificate.cert_chain_pems).decode(),
        "tls.key": certificate.private_key_pem.bytes().decode(),
    }
    only = container(
        "nginx",
        "exec nginx -c /etc/programs/nginx.conf -g 'daemon off;'",
        ready={"httpGet": {"path": "/ready", "port": PLAIN_PORT}},
        mounts={"configuration": "/etc/programs", "data": "/data"},
    )
    spec = pod_spec(only, group="app", volumes=[configured(NAME), claimed(NAME)])
    ports = [{"name": "plain", "port": PLAIN_PORT}, {"name": "tls", "port": TLS_PORT}]
    return [
        document("ConfigMap", NAME, data=data),
        deployment(NAME, 1, spec),
        document("Service", NAME, spec={"selector": {"app": NAME}, "ports": ports}),
    ]


def data_volume(name: str, source: Document, *, size: int = SIZE, **more: object) -> Document:
    """A DataVolume of the default class; without a `size`, that of its source."""
    storage: Document = {"resources": {"requests": {"storage": str(size)}}} if size else {}
    if mode := more.pop("mode", ""):
        storage["volumeMode"] = mode
    return {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {"name": name},
        "spec": {"source": source, "storage": storage, **more},
    }


def from_http(path: str, **more: object) -> Document:
    """A source at the plain server."""
    return {"http": {"url": f"http://{HOST}:{PLAIN_PORT}/{path}", **more}}


def phase(cluster: Cluster, name: str) -> str:
    """The phase of a DataVolume."""
    return str(cluster.request("GET", f"{DATA_VOLUMES}/{name}").get("status", {}).get("phase", ""))


def condition(cluster: Cluster, name: str, kind: str) -> Document:
    """A condition of a DataVolume."""
    found = cluster.request("GET", f"{DATA_VOLUMES}/{name}").get("status", {})
    return next((each for each in found.get("conditions", ()) if each["type"] == kind), {})


def wait_phase(cluster: Cluster, name: str, wanted: str, seconds: float = _SECONDS) -> None:
    """Wait until a DataVolume is in a phase."""
    wait_for(f"DataVolume {name} is {wanted}", lambda: phase(cluster, name) == wanted, seconds)


def upload(cluster: Cluster, name: str, content: bytes, path: str = "upload") -> int:
    """Send `content` into the DataVolume `name` as curl would; the status of the answer."""
    request = {
        "apiVersion": "upload.cdi.kubevirt.io/v1beta1",
        "kind": "UploadTokenRequest",
        "metadata": {"name": name},
        "spec": {"pvcName": name},
    }
    token = cluster.request("POST", _TOKENS, request)["status"]["token"]
    service = cluster.request("GET", f"{CORE}/namespaces/kubevirt/services/cdi-uploadproxy")
    tls = create_default_context()
    tls.check_hostname, tls.verify_mode = False, CERT_NONE
    url = f"https://{service['spec']['clusterIP']}/v1beta1/{path}"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
    sent = urllib.request.Request(url, content, headers, method="POST")
    with urllib.request.urlopen(sent, timeout=_SECONDS, context=tls) as answer:
        return int(answer.status)


def sums(cluster: Cluster, claims: dict[str, str]) -> dict[str, str]:
    """The SHA-256 of the first `SIZE` bytes of volumes, as a pod sees them; `claims` are the volume modes."""
    mounts = [{"name": name, "mountPath": f"/v/{name}"} for name, mode in claims.items() if mode != "Block"]
    devices = [{"name": name, "devicePath": f"/b/{name}"} for name, mode in claims.items() if mode == "Block"]
    paths = {f"{each['mountPath']}/disk.img": each["name"] for each in mounts}
    paths |= {each["devicePath"]: each["name"] for each in devices}
    script = "; ".join(f"head -c {SIZE} {path} | sha256sum" for path in paths)
    only = container("sums", script, ready={"exec": {"command": ["true"]}}, mounts={})
    only |= {"volumeMounts": mounts, "volumeDevices": devices}
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    spec: Document = {"containers": [only], "volumes": volumes, "restartPolicy": "Never"}
    spec["securityContext"] = {"runAsUser": 0}
    pods = f"{CORE}/namespaces/{NAMESPACE}/pods"
    cluster.request("POST", pods, document("Pod", "sums", spec=spec))
    try:

        def ended() -> bool:
            found = cluster.request("GET", f"{pods}/sums")["status"]["phase"]
            assert found != "Failed", cluster.kubectl("logs", "sums")
            return bool(found == "Succeeded")

        wait_for("the sums are made", ended, _SECONDS)
        lines = cluster.kubectl("logs", "sums").splitlines()
    finally:
        cluster.kubectl("delete", "pod", "sums", "--grace-period=0", "--force")
    return dict(zip(paths.values(), (line.split()[0] for line in lines), strict=True))


def disk_of_container_image(archive: Path) -> bytes:
    """The one file below ``disk/`` in the image of an archive."""
    with tarfile.open(archive) as outer:
        index = json.load(_member(outer, "index.json"))
        manifest = json.load(_member(outer, _blob(index["manifests"][0]["digest"])))
        layer = _member(outer, _blob(manifest["layers"][-1]["digest"]))
        with tarfile.open(fileobj=layer, mode="r:gz") as inner:
            member = next(each for each in inner if each.name.startswith("disk/") and each.isfile())
            found = inner.extractfile(member)
            assert found is not None
            return found.read()


def _member(tar: tarfile.TarFile, name: str) -> io.BytesIO:
    found = tar.extractfile(name)
    assert found is not None
    return io.BytesIO(found.read())


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def secret(name: str, **data: str) -> Document:
    """A secret of texts."""
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    return document("Secret", name, data=encoded)


def create(cluster: Cluster, *wanted: Document) -> None:
    """Create DataVolumes."""
    for each in wanted:
        cluster.request("POST", DATA_VOLUMES, each)


def arrived(cluster: Cluster, made: Disks, modes: dict[str, str]) -> None:
    """Check that volumes have the disk."""
    for name in modes:
        wait_phase(cluster, name, "Succeeded", 120)
    wanted = hashlib.sha256(made.content).hexdigest()
    assert sums(cluster, modes) == dict.fromkeys(modes, wanted)
