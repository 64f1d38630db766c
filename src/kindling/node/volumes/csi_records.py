"""Records of pods' CSI volumes: ``vol_data.json`` beside each mount.

The agent keeps no other state of the node's CSI volumes. A record is written before the first call of the
driver and removed after the last, so that it survives a restart of the agent in between. Paths are a
kubelet's: drivers and tools rely on them.
"""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path

import orjson

from kindling.node.pods import identity
from kindling.node.threads import in_thread

_log = logging.getLogger(__name__)

_NAME = "vol_data.json"
_PATTERN = f"volumes/kubernetes.io~csi/*/{_NAME}"
"""Below a pod's directory."""


class DamagedRecord(OSError):
    """A record that cannot be understood."""


@dataclass(frozen=True, slots=True)
class Record:
    """One pod's use of one volume. `staged`: whether the driver stages volumes (None: the record does not
    say). `attachment` names the VolumeAttachment of a driver that attaches. `claim` is the claim's namespace
    and name, `shown_as` the volume's name in the pod. `size` is that of the file system in bytes, as far as
    the agent knows. `published`: from the end of the driver's call until the beginning of the one that undoes
    it; only then is the volume there for other calls. Mounts end with their machine or mount namespace: in
    another one the volume is not published.
    """

    pod_uid: str
    volume: str
    driver: str
    handle: str
    block: bool
    staged: bool | None
    ephemeral: bool = False
    attachment: str = ""
    claim: tuple[str, str] | None = None
    shown_as: str = ""
    size: int | None = None
    published: bool = False

    @property
    def file(self) -> Path:
        """The path of the record."""
        return identity.volume_directory(self.pod_uid, "csi", self.volume) / _NAME

    @property
    def target(self) -> Path:
        """Where the volume is published for the pod."""
        return publish_path(self.pod_uid, self.volume, block=self.block)

    @property
    def staging(self) -> Path:
        """Where the volume is staged for all pods."""
        return staging_path(self.driver, self.handle, self.volume, block=self.block)


def write(record: Record, node_name: str) -> None:
    """Write a record atomically and durably (a power failure leaves the whole record or none). Raises
    OSError.
    """
    document = {
        "driverName": record.driver,
        "volumeHandle": record.handle,
        "specVolID": record.volume,
        "nodeName": node_name,
        "block": record.block,
        "staged": record.staged,
        "volumeLifecycleMode": "Ephemeral" if record.ephemeral else "Persistent",
        "attachmentID": record.attachment,
        "claim": record.claim,
        "podVolume": record.shown_as,
        "size": record.size,
        "publishedIn": _surroundings() if record.published else "",
    }
    record.file.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    fresh = record.file.with_suffix(".new")
    with fresh.open("wb") as stream:
        stream.write(orjson.dumps(document))
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(record.file)


async def store(record: Record, node_name: str) -> None:
    """As `write`, in a thread: where tenants keep the disk busy, a durable write takes seconds, and the whole
    agent would wait for it. Raises OSError.
    """
    await in_thread("csi-record", lambda _: write(record, node_name))


def _surroundings() -> str:
    """The boot of the machine and the mount namespace, in which mounts last."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/mnt').stat().st_ino}"


def remove(record: Record) -> None:
    """Forget a record and its directory, which holds no mount any more. Raises OSError."""
    record.file.with_suffix(".new").unlink(missing_ok=True)
    record.file.unlink(missing_ok=True)
    record.file.parent.rmdir()


def files_of_pod(pod_uid: str) -> list[Path]:
    """The paths of all records of one pod."""
    return sorted(identity.pod_directory(pod_uid).glob(_PATTERN))


def all_files() -> list[Path]:
    """The paths of the records of all pods."""
    return sorted((identity.ROOT / "pods").glob(f"*/{_PATTERN}"))


def is_staged_for_others(record: Record) -> bool:
    """Whether another record uses the same staged volume. Raises OSError.

    Of a record that cannot be read only the volume's name is known, not its staging directory: a volume of
    that name stays staged, all others are still unstaged.
    """
    for file in all_files():
        if file == record.file:
            continue
        try:
            other = read(file)
            if not other.ephemeral and other.staging == record.staging:
                return True
        except DamagedRecord as problem:
            if file.parent.name == record.volume:
                _log.warning(
                    "volume %s stays staged, because another record of it cannot be read: %s",
                    record.volume,
                    problem,
                )
                return True
    return False


def is_published(record: Record) -> bool:
    """Whether the volume of a record that may be old is published now. Raises DamagedRecord, OSError."""
    return record.file.exists() and read(record.file).published


def read(file: Path) -> Record:
    """The record in `file`. Raises DamagedRecord, OSError."""
    try:
        found = orjson.loads(file.read_bytes())
        driver, handle = found["driverName"], found["volumeHandle"]
        if not isinstance(driver, str) or not isinstance(handle, str):
            raise TypeError("driverName and volumeHandle must be strings")
        claim = found.get("claim")
        return Record(
            pod_uid=file.parents[3].name,
            volume=file.parent.name,
            driver=driver,
            handle=handle,
            block=bool(found.get("block")),
            staged=found.get("staged"),
            ephemeral=found.get("volumeLifecycleMode") == "Ephemeral",
            attachment=str(found.get("attachmentID") or ""),
            claim=(str(claim[0]), str(claim[1])) if claim else None,
            shown_as=str(found.get("podVolume") or ""),
            size=found.get("size"),
            published=found.get("publishedIn") == _surroundings(),
        )
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError) as error:
        raise DamagedRecord(
            f"{file} is not a valid record of a CSI volume: {error!r}; mend or remove it"
        ) from error


def publish_path(pod_uid: str, volume: str, *, block: bool) -> Path:
    """Where a driver publishes a volume for a pod."""
    if block:
        return identity.ROOT / "plugins/kubernetes.io/csi/volumeDevices/publish" / volume / pod_uid
    return identity.volume_directory(pod_uid, "csi", volume) / "mount"


def staging_path(driver: str, handle: str, volume: str, *, block: bool) -> Path:
    """Where a driver stages a volume for all pods of the node."""
    base = identity.ROOT / "plugins/kubernetes.io/csi"
    if block:
        return base / "volumeDevices/staging" / volume
    return base / driver / hashlib.sha256(handle.encode()).hexdigest() / "globalmount"
