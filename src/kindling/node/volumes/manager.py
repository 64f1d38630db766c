"""The volume manager: sets up and tears down the volumes of pods."""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kindling.node import files
from kindling.node.images.manager import ImageProblem
from kindling.node.pods import identity
from kindling.node.pods.cgroup_limits import pod_limits
from kindling.node.pods.container import volume_mount
from kindling.node.pods.environment import expand
from kindling.node.pods.resources import HUGE_PAGES
from kindling.node.threads import in_thread
from kindling.node.volumes import content, host_path, loop_devices, mounts, ownership, subpath
from kindling.node.volumes.atomic_writer import write_payload
from kindling.node.volumes.content import ContentProblem, MountProblem, NotAttached
from kubecore import mountinfo
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.quantity import Quantity

_log = logging.getLogger(__name__)


class VolumeProblem(Exception):
    """A volume cannot be set up now; `event_message` is the FailedMount event's text.

    `waiting_reason` is the waiting reason of the containers that mount the volume, when its image cannot be
    pulled. `event_reason` is that of the event.
    """

    def __init__(self, volume: str, problem: Exception | str, waiting_reason: str = "") -> None:
        super().__init__(str(problem))
        self.volume = volume
        self.waiting_reason = waiting_reason
        self.event_reason = "FailedMount"
        self.event_message = f'MountVolume.SetUp failed for volume "{volume}" : {problem}'
        if isinstance(problem, MountProblem):
            self.event_reason = problem.reason
            self.event_message = problem.event_message
        elif isinstance(problem, NotAttached):
            self.event_message = (
                f"Unable to attach or mount volumes: unmounted volumes=[{volume}], "
                f"unattached volumes=[{volume}], failed to process volumes=[]: {problem}"
            )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A volume ready for use: a directory or file to mount, or a block device."""

    path: Path
    read_only: bool = False
    is_block: bool = False


class VolumeBackend(Protocol):
    """What volumes need from the API and the runtime."""

    async def materials(self, pod: JsonObject, volume: JsonObject) -> content.Materials:
        """Objects and tokens that a rendered volume is made from."""

    async def claim(self, namespace: str, name: str) -> tuple[JsonObject, JsonObject]:
        """A bound claim and its volume. Raises ContentProblem."""

    async def mount_image(self, pod: JsonObject, reference: str, policy: str, target: Path) -> None:
        """Mount an image's files read-only at `target`. Raises ContentProblem, ImageProblem."""

    async def unmount_image(self, target: Path) -> None:
        """Undo `mount_image`."""


class PersistentDriver(Protocol):
    """Volumes of a storage driver (CSI), by the field of a PersistentVolume's or pod's source."""

    async def publish(
        self, pod: JsonObject, shown_as: str, claim: JsonObject, persistent: JsonObject, *, read_only: bool
    ) -> Prepared:
        """Make a persistent volume usable for the pod, which calls it `shown_as`."""

    async def publish_inline(self, pod: JsonObject, volume: JsonObject) -> Prepared:
        """Make a volume that the pod describes itself usable for it."""

    async def unpublish(self, pod_uid: str) -> None:
        """Undo `publish` for all volumes of a pod."""


class VolumeManager:
    """The volumes of all pods on a node. All state is on disk and in the mount table."""

    def __init__(self, backend: VolumeBackend, drivers: Mapping[str, PersistentDriver] | None = None) -> None:
        self._backend = backend
        self._drivers = dict(drivers or {})
        self._looping = asyncio.Lock()

    def uids(self) -> set[str]:
        """Pods with volumes that were set up and not torn down."""
        pods = identity.pod_directory("")
        return {entry.name for entry in pods.iterdir()} if pods.is_dir() else set()

    async def prepare(self, pod: JsonObject) -> dict[str, Prepared]:
        """Set every volume of `pod` up (again, after a restart). Raises VolumeProblem.

        When an image cannot be pulled, the containers that mount it show that as well (`waiting_reason`).
        """
        uid = get_str(pod, "metadata", "uid")
        base = identity.pod_directory(uid)
        base.mkdir(parents=True, exist_ok=True, mode=0o750)
        for name in ("containers", "plugins", "volumes"):
            (base / name).mkdir(exist_ok=True, mode=0o750)
        prepared = {}
        allowance = content.Allowance()
        for volume in get_list(pod, "spec", "volumes"):
            name = get_str(volume, "name")
            try:
                prepared[name] = await self._prepare_one(pod, uid, volume, allowance)
            except ImageProblem as error:
                raise VolumeProblem(name, error, error.reason) from error
            except (ContentProblem, OSError, loop_devices.LoopFailure) as error:
                raise VolumeProblem(name, error) from error
        return prepared

    async def refresh(self, pod: JsonObject) -> None:
        """Update the config map, secret and projected volumes of a running pod; failures are logged."""
        allowance = content.Allowance()
        for volume in get_list(pod, "spec", "volumes"):
            if content.is_content(volume):
                try:
                    await self._render(pod, get_str(pod, "metadata", "uid"), volume, allowance)
                except (ContentProblem, OSError) as error:
                    text = "updating volume %s of pod %s failed, trying again: %s"
                    _log.warning(text, volume["name"], identity.display_name(pod), error)

    async def clean_up(self, uid: str) -> None:
        """Unmount and remove all volumes of a pod. Raises OSError when a mount or file cannot be removed."""
        for driver in self._drivers.values():
            await driver.unpublish(uid)
        base = identity.pod_directory(uid)
        if not base.exists():
            return
        images = base / "volumes" / "kubernetes.io~image"
        if images.is_dir():
            for target in images.iterdir():
                await self._backend.unmount_image(target)
        await self._detach_loops(uid)
        for point in mountinfo.mount_points_below(base):
            mounts.unmount(point)
        left = mountinfo.mount_points_below(base)
        if left:
            raise OSError(f"{left[0]} is still mounted")
        await in_thread("remove-pod", lambda check: files.remove_tree(base, check))

    async def _detach_loops(self, uid: str) -> None:
        """Detach the pod's loop devices, except those that volumes of other pods use."""
        async with self._looping:
            for link in _device_links(uid):
                device = link.readlink()
                if not str(device).startswith("/dev/loop"):
                    continue
                if all(other.readlink() != device for other in _device_links("*") if other != link):
                    await loop_devices.detach(device)
                link.unlink()

    async def container_mounts(
        self,
        pod: JsonObject,
        container: JsonObject,
        prepared: Mapping[str, Prepared],
        values: Mapping[str, str],
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """CRI's mounts and devices of a container; `values` expand subPathExpr.

        A volume whose server does not answer keeps its own pod waiting, and no other. Raises ContentProblem,
        OSError.
        """
        return await in_thread(
            "container-mounts", lambda _: self._container_mounts(pod, container, prepared, values)
        )

    def _container_mounts(
        self,
        pod: JsonObject,
        container: JsonObject,
        prepared: Mapping[str, Prepared],
        values: Mapping[str, str],
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        uid = get_str(pod, "metadata", "uid")
        documents = []
        for index, mount in enumerate(get_list(container, "volumeMounts")):
            volume = prepared.get(get_str(mount, "name"))
            if volume is None or volume.is_block:
                raise ContentProblem(f'volume "{get_str(mount, "name")}" cannot be mounted')
            source = volume.path
            relative = get_str(mount, "subPath") or expand(get_str(mount, "subPathExpr"), (values,))
            if relative:
                name, owner = get_str(mount, "name"), get_str(container, "name")
                source = subpath.prepare(uid, name, owner, index, source, relative)
            documents.append(volume_mount(mount, str(source), read_only=volume.read_only))
        devices = []
        for device in get_list(container, "volumeDevices"):
            volume = prepared.get(get_str(device, "name"))
            if volume is None or not volume.is_block:
                raise ContentProblem(f'volume "{get_str(device, "name")}" is not a block device')
            devices.append(
                {
                    "container_path": get_str(device, "devicePath"),
                    "host_path": str(volume.path),
                    "permissions": "r" if volume.read_only else "mrw",
                }
            )
        return documents, devices

    async def _prepare_one(
        self, pod: JsonObject, uid: str, volume: JsonObject, allowance: content.Allowance
    ) -> Prepared:
        name = get_str(volume, "name")
        if "emptyDir" in volume:
            return Prepared(await _empty_dir(pod, uid, volume))
        if "hostPath" in volume:
            path = Path(get_str(volume, "hostPath", "path"))
            host_path.check(path, get_str(volume, "hostPath", "type"))
            return Prepared(path)
        if content.is_content(volume):
            return Prepared(await self._render(pod, uid, volume, allowance), read_only=True)
        if "persistentVolumeClaim" in volume or "ephemeral" in volume:
            return await self._persistent(pod, uid, volume)
        if "image" in volume:
            target = identity.volume_directory(uid, "image", name)
            if not mounts.is_mounted(target):
                target.mkdir(parents=True, exist_ok=True)
                source = volume["image"]
                await self._backend.mount_image(
                    pod,
                    get_str(source, "reference"),
                    get_str(source, "pullPolicy", default="IfNotPresent"),
                    target,
                )
            return Prepared(target, read_only=True)
        for kind, driver in self._drivers.items():
            if kind in volume:
                return await driver.publish_inline(pod, volume)
        kind = next((key for key in volume if key != "name"), "nothing")
        raise ContentProblem(f"volume source {kind} is not supported by this node")

    async def _render(
        self, pod: JsonObject, uid: str, volume: JsonObject, allowance: content.Allowance
    ) -> Path:
        kinds = {"configMap": "configmap", "secret": "secret", "downwardAPI": "downward-api"}
        plugin = next((kinds[key] for key in kinds if key in volume), "projected")
        target = identity.volume_directory(uid, plugin, get_str(volume, "name"))
        materials = await self._backend.materials(pod, volume)

        def render() -> None:
            files = content.payload(volume, materials, allowance)
            target.mkdir(parents=True, exist_ok=True)
            target.chmod(0o777)
            if plugin != "configmap" and not mounts.is_mounted(target):
                # Secrets and tokens are kept in memory (tmpfs), never on disk.
                mounts.mount("tmpfs", target, "tmpfs", mounts.MS_NOSUID | mounts.MS_NODEV, "mode=777")
            write_payload(target, files, ownership.fs_group(pod))

        # A pod may have thousands of files, which are compared with what they should be each minute.
        await in_thread("render-volume", lambda _: render())
        return target

    async def _persistent(self, pod: JsonObject, uid: str, volume: JsonObject) -> Prepared:
        source = get_object(volume, "persistentVolumeClaim")
        claim_name = get_str(source, "claimName") or f"{get_str(pod, 'metadata', 'name')}-{volume['name']}"
        claim, persistent = await self._backend.claim(get_str(pod, "metadata", "namespace"), claim_name)
        if "ephemeral" in volume and not meta.is_controlled_by(claim, pod):
            where = "/".join(meta.key(claim))
            owner = "/".join(meta.key(pod))
            raise ContentProblem(f"PVC {where} was not created for pod {owner} (pod is not owner)")
        read_only = get_bool(source, "readOnly")
        spec = get_object(persistent, "spec")
        for kind, driver in self._drivers.items():
            if kind in spec:
                shown_as = get_str(volume, "name")
                return await driver.publish(pod, shown_as, claim, persistent, read_only=read_only)
        plugin = "host-path" if "hostPath" in spec else "local-volume"
        path = Path(get_str(spec, "hostPath", "path") or get_str(spec, "local", "path"))
        if not path.is_absolute():
            raise ContentProblem(
                f"persistent volume {get_str(persistent, 'metadata', 'name')} has no usable source"
            )
        if get_str(claim, "spec", "volumeMode") == "Block":
            # No other pod may detach the loop device between looking it up and linking it.
            async with self._looping:
                device = await _block_device(uid, plugin, persistent, path)
            return Prepared(device, read_only, is_block=True)
        if "hostPath" in spec:
            host_path.check(path, get_str(spec, "hostPath", "type"))
        if not path.exists():
            raise ContentProblem(f'path "{path}" does not exist')
        if "local" in spec:
            target = identity.volume_directory(uid, plugin, get_str(persistent, "metadata", "name"))
            target.mkdir(parents=True, exist_ok=True)
            if not mounts.is_mounted(target):
                mounts.bind(str(path), target)
            await ownership.apply(pod, target)
            return Prepared(target, read_only)
        return Prepared(path, read_only)


async def _empty_dir(pod: JsonObject, uid: str, volume: JsonObject) -> Path:
    target = identity.volume_directory(uid, "empty-dir", get_str(volume, "name"))
    medium = get_str(volume, "emptyDir", "medium")
    huge = huge_page_size(pod, volume) if medium.startswith("HugePages") else 0
    if medium not in ("", "Memory") and not huge:
        raise ContentProblem(f'emptyDir medium "{medium}" is not supported by this node')
    if not target.exists():
        target.mkdir(parents=True)
        target.chmod(0o777)
    if medium == "Memory" and not mounts.is_mounted(target):
        size = memory_size(pod, volume)
        options = "mode=777" if size is None else f"mode=777,size={size}"
        mounts.mount("tmpfs", target, "tmpfs", 0, options)
    if huge and not mounts.is_mounted(target):
        # Use counts in the cgroup of the process that touches a page.
        mounts.mount("nodev", target, "hugetlbfs", 0, f"mode=777,pagesize={huge}")
    await ownership.apply(pod, target)
    return target


def memory_size(pod: JsonObject, volume: JsonObject) -> int | None:
    """The most bytes of a volume in memory: its own limit, and no more than the pod may use; None for any."""
    limit = get_object(volume, "emptyDir").get("sizeLimit")
    sizes = [Quantity.parse(limit).value if limit is not None else 0, pod_limits(pod).memory or 0]
    return min((size for size in sizes if size > 0), default=None)


def huge_page_size(pod: JsonObject, volume: JsonObject) -> int:
    """The size in bytes of the huge pages that a volume is made of. Raises ContentProblem."""
    name = get_str(volume, "name")
    _, dash, size = get_str(volume, "emptyDir", "medium").partition("-")
    requested = {
        Quantity.parse(resource.removeprefix(HUGE_PAGES)).value
        for container in get_list(pod, "spec", "containers") + get_list(pod, "spec", "initContainers")
        for resource in get_object(container, "resources", "requests")
        if resource.startswith(HUGE_PAGES)
    }
    if dash:
        try:
            wanted = Quantity.parse(size).value
        except ValueError as error:
            raise ContentProblem(f"volume {name} has a medium of unknown size: {error}") from error
        if wanted not in requested:
            raise ContentProblem(f"medium of volume {name} is not among the huge pages that the pod requests")
        return wanted
    if len(requested) != 1:
        raise ContentProblem(
            f"medium HugePages of volume {name} needs containers that request huge pages of one size, "
            f"and they request {len(requested)}"
        )
    return requested.pop()


def _device_links(uid: str) -> list[Path]:
    """Links to the block devices of a pod's volumes (``*``: of all pods)."""
    found = identity.pod_directory("").glob(f"{uid}/volumeDevices/*/*")
    return [link for link in found if link.is_symlink()]


async def _block_device(uid: str, plugin: str, persistent: JsonObject, path: Path) -> Path:
    mode = path.stat().st_mode
    device = path if stat.S_ISBLK(mode) else await loop_devices.attach(path)
    link = identity.pod_directory(uid) / "volumeDevices" / f"kubernetes.io~{plugin}"
    link.mkdir(parents=True, exist_ok=True)
    named = link / get_str(persistent, "metadata", "name")
    if not named.is_symlink():
        named.symlink_to(device)
    return device
