"""What users of data volumes ask for while everything is killed: imports, uploads and clones, by chance.

Every DataVolume has a pod that waits for its claim from the beginning, and notes in the ledger when what it
finds there is not the whole disk.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import random
import ssl
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.e2e.claim_traces import CLAIMS, SNAPSHOTS
from tests.e2e.claim_users import BLOCK, LOCAL, MIB, NAMESPACE, SHARED, SIZES, Ledger
from tests.e2e.clusters import CORE, Cluster
from tests.e2e.commands import ROOT, run
from tests.e2e.failures import ANSWERS_LOST, ApiError, Document, work_off
from tests.support.shellpods import IMAGE

_CDI = "/apis/cdi.kubevirt.io/v1beta1"
VOLUMES = f"{_CDI}/namespaces/{NAMESPACE}/datavolumes"
PODS = f"{CORE}/namespaces/{NAMESPACE}/pods"
_TOKENS = f"/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/{NAMESPACE}/uploadtokenrequests"
_PROXY = f"{CORE}/namespaces/kubevirt/services/cdi-uploadproxy"
_COPIED_PROFILE = f"{_CDI}/storageprofiles/{LOCAL}"
_SIZE = 16 * MIB
_BYTES_PER_SECOND = 8 * MIB
_IMAGES = 3
_FORMATS = ("img", "qcow2", "img.gz")
_PORT = 8091
_VOLUMES = 8
_READER = r"""
file=/data/disk.img; [ -b /dev/data ] && file=/dev/data
found=$(head -c $SIZE $file | sha256sum); found=${found%% *}
mkdir -p /ledger/problems /ledger/whole
[ $found = $SUM ] || { echo "$file has $found, not $SUM" >> /ledger/problems/$POD; exit 1; }
touch /ledger/whole/$POD
"""


@dataclass(frozen=True)
class Images:
    """Disks in a folder, and where they are served from."""

    folder: Path
    address: str

    def content(self, number: int) -> bytes:
        """The disk, as it is to be found in volumes."""
        return (self.folder / f"{number}.img").read_bytes()


@dataclass
class Volume:
    """A DataVolume that a user wants; `image` is the number of what it must have."""

    name: str
    kind: str
    image: int
    mode: str
    storage_class: str
    source: Document

    def manifest(self) -> Document:
        """The DataVolume."""
        storage = {
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": self.mode,
            "storageClassName": self.storage_class,
            "resources": {"requests": {"storage": f"{SIZES[self.mode]}Mi"}},
        }
        return {
            "apiVersion": "cdi.kubevirt.io/v1beta1",
            "kind": "DataVolume",
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": {"source": self.source, "storage": storage},
        }

    def reader(self, ledger: Ledger, wanted: str) -> Document:
        """The pod that looks what is in the claim."""
        values = {"POD": self.name, "SIZE": str(_SIZE), "SUM": wanted}
        main: Document = {
            "name": "main",
            "image": IMAGE,
            "command": ["sh", "-c", _READER],
            "env": [{"name": name, "value": value} for name, value in values.items()],
            "volumeMounts": [{"name": "ledger", "mountPath": "/ledger"}],
        }
        if self.mode == BLOCK:
            main["volumeDevices"] = [{"name": "data", "devicePath": "/dev/data"}]
        else:
            main["volumeMounts"].append({"name": "data", "mountPath": "/data", "readOnly": True})
        volumes = [
            {"name": "ledger", "hostPath": {"path": str(ledger.folder), "type": "Directory"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": self.name}},
        ]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"reader-{self.name}", "namespace": NAMESPACE, "labels": {"app": "reader"}},
            "spec": {"restartPolicy": "OnFailure", "containers": [main], "volumes": volumes},
        }


@contextmanager
def served_images(
    cluster: Cluster, folder: Path, bytes_per_second: int = _BYTES_PER_SECOND
) -> Iterator[Images]:
    """Disks in several formats, served slowly in the network of a node, where pods reach them."""
    folder.chmod(0o755)
    for number in range(_IMAGES):
        content = bytearray(random.Random(number).randbytes(_SIZE))
        content[4 * MIB : 7 * MIB] = bytes(3 * MIB)
        raw = folder / f"{number}.img"
        raw.write_bytes(content)
        run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, folder / f"{number}.qcow2")
        (folder / f"{number}.img.gz").write_bytes(gzip.compress(content, 1))
    node = cluster.request("GET", f"{CORE}/nodes/node01")
    address = next(each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP")
    network = ["nsenter", f"--net={cluster.state / 'nodes/node01/ns/net'}"]
    module = [sys.executable, "-m", "tests.support.slow_files"]
    command = [*network, *module, address, str(_PORT), str(folder), str(bytes_per_second)]
    with subprocess.Popen(command, cwd=ROOT) as server:
        try:
            yield Images(folder, f"http://{address}:{_PORT}")
        finally:
            server.kill()


@contextmanager
def users_of_disks(cluster: Cluster, folder: Path, bytes_per_second: int) -> Iterator[Importers]:
    """Users in a namespace of their own, and a server of disks; `folder` is for both and the ledger."""
    served, ledger = folder / "served", Ledger(folder / "ledger")
    for each in (served, ledger.folder):
        each.mkdir()
    cluster.request("POST", f"{CORE}/namespaces", {"metadata": {"name": NAMESPACE}})
    try:
        with served_images(cluster, served, bytes_per_second) as images:
            made = Importers(cluster, ledger, images, random.Random(0))
            try:
                yield made
            finally:
                made.leave()
    finally:
        cluster.request("DELETE", f"{CORE}/namespaces/{NAMESPACE}")


@contextmanager
def copying_class(cluster: Cluster) -> Iterator[None]:
    """Have clones in the class of local volumes made by pods."""
    cluster.request("PATCH", _COPIED_PROFILE, {"spec": {"cloneStrategy": "copy"}})
    try:
        yield
    finally:
        cluster.request("PATCH", _COPIED_PROFILE, {"spec": {"cloneStrategy": None}})


@dataclass(eq=False)
class Client(threading.Thread):
    """Somebody who uploads a disk slowly, and again for as long as that has not succeeded."""

    cluster: Cluster
    volume: str
    content: bytes
    ended: threading.Event
    sent: int = 0
    """How often all of the disk was taken."""
    refusals: list[str] = field(default_factory=list)
    """What was answered where it was not."""

    def __post_init__(self) -> None:
        super().__init__(name=f"upload-{self.volume}", daemon=True)

    def run(self) -> None:
        """Upload until the DataVolume has succeeded or is gone."""
        while not self.ended.is_set():
            try:
                document = self.cluster.find(f"{VOLUMES}/{self.volume}")
                phase = (document or {}).get("status", {}).get("phase")
                if document is None or phase == "Succeeded":
                    return
                if phase == "UploadReady":
                    self.sent += self._send()
            except (*ANSWERS_LOST, ApiError, KeyError, ValueError):
                pass  # it was killed, or is not there yet
            self.ended.wait(0.3)

    def _send(self) -> bool:
        request = {
            "apiVersion": "upload.cdi.kubevirt.io/v1beta1",
            "kind": "UploadTokenRequest",
            "metadata": {"name": self.volume},
            "spec": {"pvcName": self.volume},
        }
        token = self.cluster.request("POST", _TOKENS, request)["status"]["token"]
        address = self.cluster.request("GET", _PROXY)["spec"]["clusterIP"]
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(address, context=tls, timeout=30)
        headers = {"Authorization": f"Bearer {token}", "Content-Length": str(len(self.content))}
        try:
            connection.request("POST", "/v1beta1/upload", self._pieces(), headers)
            answer = connection.getresponse()
            if answer.status != 200:
                self.refusals.append(answer.read(4096).decode(errors="replace"))
            return answer.status == 200
        finally:
            connection.close()

    def _pieces(self) -> Iterator[bytes]:
        for place in range(0, len(self.content), MIB):
            yield self.content[place : place + MIB]
            self.ended.wait(MIB / _BYTES_PER_SECOND)


@dataclass
class Importers:
    """All users. What they want to do is done in order, and again where an answer was lost."""

    cluster: Cluster
    ledger: Ledger
    images: Images
    random: random.Random
    volumes: list[Volume] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    _todo: deque[Callable[[], None]] = field(default_factory=deque)

    def act(self) -> None:
        """Do what a user might; where the API does not answer, the same once more at the next call."""
        if not self._todo:
            if len(self.volumes) < _VOLUMES:
                self._begin()
            elif self.random.random() < 0.5:
                self._delete(self.random.choice(self.volumes))
        self.catch_up()

    def catch_up(self) -> bool:
        """Do what is left to do; gives whether all is done."""
        return work_off(self._todo)

    def leave(self) -> None:
        """End all uploads."""
        self.ended.set()
        for client in self.clients:
            client.join()

    def phases(self) -> dict[str, str]:
        """The phases of the DataVolumes that are not filled."""
        found = {each["metadata"]["name"]: each.get("status", {}) for each in self.cluster.items(VOLUMES)}
        phases = {each.name: found.get(each.name, {}).get("phase", "") for each in self.volumes}
        return {name: phase for name, phase in phases.items() if phase != "Succeeded"}

    def unread(self) -> list[str]:
        """Volumes in which no pod has found the whole disk."""
        return [each.name for each in self.volumes if not (self.ledger.folder / "whole" / each.name).exists()]

    def sums(self, volume: Volume) -> str:
        """The sum of what must be in a volume."""
        return hashlib.sha256(self.images.content(volume.image)).hexdigest()

    def _begin(self) -> None:
        kind = self.random.choice(("import", "import", "upload", "clone"))
        image, mode = self.random.randrange(_IMAGES), self.random.choice(tuple(SIZES))
        name = f"{kind}-{len(self.done)}"
        source: Document = {"upload": {}}
        storage_class = self.random.choice((SHARED, LOCAL))
        if kind == "import":
            file = f"{image}.{self.random.choice(_FORMATS)}"
            source = {"http": {"url": f"{self.images.address}/{file}"}}
        elif kind == "clone":
            sources = [each for each in self.volumes if each.kind != "clone"]
            if not sources:
                return
            original = self.random.choice(sources)
            image, mode, storage_class = original.image, original.mode, original.storage_class
            source = {"pvc": {"name": original.name, "namespace": NAMESPACE}}
        volume = Volume(name, kind, image, mode, storage_class, source)
        self.want(volume)
        if kind == "upload":
            self._todo.append(partial(self.upload, volume))

    def want(self, volume: Volume) -> None:
        """Have `catch_up` create a DataVolume with its reader."""
        self.volumes.append(volume)
        self.done.append(volume.kind)
        self._todo.append(partial(self._create, VOLUMES, volume.manifest()))
        self._todo.append(partial(self._create, PODS, volume.reader(self.ledger, self.sums(volume))))

    def upload(self, volume: Volume) -> None:
        """Have a client upload to a DataVolume, beside what else happens."""
        client = Client(self.cluster, volume.name, self.images.content(volume.image), self.ended)
        self.clients.append(client)
        client.start()

    def _delete(self, volume: Volume) -> None:
        """Delete a volume with its reader, and what still waits to be cloned from it."""
        self.done.append("delete")
        sources = {"pvc": {"name": volume.name, "namespace": NAMESPACE}}
        for each in [each for each in self.volumes if each is volume or each.source == sources]:
            self.volumes.remove(each)
            for path in (f"{PODS}/reader-{each.name}", f"{VOLUMES}/{each.name}"):
                self._todo.append(partial(self._remove, path))

    def _create(self, path: str, document: Document) -> None:
        if self.cluster.find(f"{path}/{document['metadata']['name']}") is None:
            self.cluster.request("POST", path, document)

    def _remove(self, path: str) -> None:
        if self.cluster.find(path) is not None:
            self.cluster.request("DELETE", path)


def left_of_imports(cluster: Cluster, volumes: list[Volume]) -> list[str]:
    """What remains of filled DataVolumes beside their claims."""
    names = {each.name for each in volumes}
    found = [name for each in cluster.items(CLAIMS) if (name := each["metadata"]["name"]) not in names]
    readers = {f"reader-{name}" for name in names}
    found += [name for each in cluster.items(PODS) if (name := each["metadata"]["name"]) not in readers]
    paths = [f"{CORE}/namespaces/{NAMESPACE}/{kind}" for kind in ("services", "secrets")]
    paths += [
        f"{_CDI}/namespaces/{NAMESPACE}/{kind}"
        for kind in ("volumeimportsources", "volumeuploadsources", "volumeclonesources")
    ]
    for path in (*paths, SNAPSHOTS):
        kind = path.rpartition("/")[2]
        found += [f"{kind} {each['metadata']['name']}" for each in cluster.items(path)]
    return found
