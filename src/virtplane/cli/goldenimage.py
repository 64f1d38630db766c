"""``virtplane load --debian``: the Debian disk in the embedded cluster, for every user's machines to clone.

Each build is a DataVolume of its own, named by the digest of the disk; the DataSource leads to the newest one
that is filled. So a machine never clones half a disk, and a command that was interrupted at any moment is
completed by the next one.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from kubecore import errors, resources
from kubecore.client import Client, ConfigError, ConnectionFailed, load_kubeconfig
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api import storage_labels
from virtplane.api.resources import DATA_SOURCES, DATA_VOLUMES, VOLUME_CLONE_SOURCES
from virtplane.cli import cluster, status, uploads
from virtplane.cli.state import IMAGES
from virtplane.cli.terminal import EXIT_FAILED, EXIT_NOT_PERMITTED, CommandError, say, step
from virtplane.cli.virtctl.contents import Content, whole
from virtplane.cli.virtctl.uploading import uploadclaims
from virtplane.cli.virtctl.uploading.imageupload import Transfer, deliver
from virtplane.cli.virtctl.uploading.uploadclaims import Target
from virtplane.image import datasource
from virtplane.image.commands import BuildError, NotRoot
from virtplane.image.debian import build as debian
from virtplane.image.debian import packages
from virtplane.image.debian.disk import DISK_BYTES
from virtplane.image.locking import alone

_FIELD_MANAGER = "virtplane-load"
_DIGEST_DIGITS = 12
_SECONDS = 300.0
"""For each thing that the cluster does: an upload server that starts, a disk that becomes a volume."""
_RETRIES = 10
"""Half a minute: so long may an upload server be busy with what a killed command has sent."""
_FIRMWARE, _FIRMWARE_PACKAGE = Path("/usr/share/OVMF/OVMF_CODE_4M.fd"), "ovmf"
_NAMESPACE, _SOURCE = datasource.NAMESPACE, f"{datasource.NAMESPACE}/{datasource.NAME}"
_USE = (
    f"virtctl create vm --volume-import type:ds,src:{_SOURCE} --infer-instancetype --infer-preference"
    " | kubectl create -f -"
)


def load_debian(state: Path) -> None:
    """Offer the Debian disk as DataSource; the disk is built unless it exists. Raises CommandError."""
    kubeconfig = state / "kubeconfig"
    _check_ready(state, kubeconfig)
    images = state / IMAGES
    try:
        images.mkdir(exist_ok=True)
        image = debian.ensure(images, step)
        _install_firmware()
        # Alone, because each would remove the DataVolume of the other's build as an old one.
        with alone(images / "load-debian.lock", step, "Waiting for another load"), _opened(image) as disk:
            name = volume_name(disk)
            asyncio.run(_connect_and_publish(kubeconfig, disk, name))
    except BuildError as error:
        code = EXIT_NOT_PERMITTED if isinstance(error, NotRoot) else EXIT_FAILED
        raise CommandError(error.what, error.why, error.do, code=code) from error
    except click.ClickException as error:
        raise _incomplete(error.message) from error
    except (OSError, StatusError, ConnectionFailed, ConfigError) as error:
        raise _incomplete(str(error)) from error
    say(f"Machines start from it with: {_USE}")


def volume_name(disk: Content) -> str:
    """The name of the DataVolume for a disk: other content has another name. Raises OSError."""
    with disk.path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return f"{datasource.NAME}-{digest[:_DIGEST_DIGITS]}"


async def publish(client: Client, disk: Content, name: str) -> None:
    """Have the DataSource lead to the DataVolume `name` with the content of `disk`; remove older ones.

    Raises CommandError, click.ClickException, StatusError, ConnectionFailed.
    """
    await _check_source(client)
    await _share(client)
    await _fill(client, Target(_NAMESPACE, name), disk)
    await _lead(client, name)
    await _remove_others(client, name)


def _check_ready(state: Path, kubeconfig: Path) -> None:
    """Raises CommandError before a minute is spent on building a disk that nobody takes."""
    try:
        missing = asyncio.run(status.missing(kubeconfig, cluster.NAMESPACE))
    except ConfigError as error:
        missing = str(error)
    if missing:
        do = f"Start what is missing: {cluster.PROGRAM} up --state {state}"
        raise CommandError("The cluster is not ready.", missing, do)


def _install_firmware() -> None:
    """The disk's preference is UEFI, and nodes have what this machine has of it. Raises BuildError."""
    if not _FIRMWARE.exists():
        with step(f"Installing {_FIRMWARE_PACKAGE}"):
            packages.install_tools([_FIRMWARE_PACKAGE])


def _incomplete(why: str) -> CommandError:
    do = "Repeat the command: it continues where this one ended."
    return CommandError("The Debian disk could not be loaded.", why, do)


@contextmanager
def _opened(image: Path) -> Iterator[Content]:
    """The image as it is now, even when another build takes its place. Raises OSError."""
    with image.open("rb") as stream:
        yield whole(Path(f"/proc/{os.getpid()}/fd/{stream.fileno()}"))


async def _connect_and_publish(kubeconfig: Path, disk: Content, name: str) -> None:
    async with Client(load_kubeconfig(kubeconfig)) as client:
        await publish(client, disk, name)


async def _check_source(client: Client) -> None:
    """Raises CommandError where nothing can be done: nobody makes volumes, or the DataSource is another's."""
    classes = get_list(await client.list(resources.STORAGE_CLASSES), "items")
    if not any(map(_is_default, classes)):
        raise CommandError(
            "The cluster has no default StorageClass, which would make the disk's volume.",
            do=f"Mark a class as the default, or have a storage pool: {cluster.PROGRAM} up --storage 50Gi",
        )
    found = await uploadclaims.get(client, DATA_SOURCES, datasource.NAME, _NAMESPACE)
    if found is not None and not datasource.is_made_here(found):
        raise CommandError(
            f"DataSource {_SOURCE} belongs to somebody else.",
            "It was not made by this command, or a DataImportCron keeps it.",
            f"Delete it first: kubectl -n {_NAMESPACE} delete datasource {datasource.NAME}",
        )


def _is_default(storage_class: JsonObject) -> bool:
    found = meta.annotations(storage_class)
    names = (storage_labels.DEFAULT_CLASS, storage_labels.DEFAULT_VIRT_CLASS)
    return any(found.get(name) == "true" for name in names)


async def _share(client: Client) -> None:
    """Make the namespace, and let every user clone from it; what an administrator has changed stays."""
    if await uploadclaims.get(client, resources.NAMESPACES, _NAMESPACE, "") is None:
        with errors.ignoring(409):
            await client.create(resources.NAMESPACES, {"metadata": {"name": _NAMESPACE}})
    for resource, document in (
        (resources.ROLES, datasource.view_role(_NAMESPACE)),
        (resources.ROLE_BINDINGS, datasource.view_binding(_NAMESPACE)),
    ):
        # Not by force: a conflict means that somebody else has set who may do what.
        with errors.ignoring(409):
            await client.patch(
                resource,
                meta.name(document),
                document,
                _NAMESPACE,
                type="apply",
                field_manager=_FIELD_MANAGER,
            )


async def _fill(client: Client, target: Target, disk: Content) -> None:
    """Have the DataVolume with the content of `disk`."""
    volume = await _present(client, target)
    if get_str(volume, "status", "phase") == "Succeeded":
        say(f"DataVolume {target.namespace}/{target.name} has this disk already")
        return
    proxy = await uploads.proxy(client, cluster.NAMESPACE)
    transfer = Transfer("", insecure=False, wait_seconds=int(_SECONDS), retries=_RETRIES, force_bind=True)
    try:
        restarts = await deliver(client, target, disk, transfer, proxy)
        await uploadclaims.wait_until_processed(client, target, restarts)
    except click.ClickException:
        # What a killed command has sent may have been processed meanwhile; then no more is taken.
        if not await uploadclaims.is_filled(client, target):
            raise

    async def has_succeeded() -> bool:
        found = await client.get(DATA_VOLUMES, target.name, target.namespace)
        return get_str(found, "status", "phase") == "Succeeded"

    await _wait(f"DataVolume {target.name} is not filled", has_succeeded)


async def _present(client: Client, target: Target) -> JsonObject:
    """The DataVolume; it is created, also in the place of one that has failed or is being deleted."""
    found = await uploadclaims.get(client, DATA_VOLUMES, target.name, target.namespace)
    if found is not None and get_str(found, "status", "phase") == "Failed":
        await _delete(client, found)
    elif found is not None and not meta.is_being_deleted(found):
        return found

    async def is_gone() -> bool:
        # The claim goes after the DataVolume, and must not become the new one's.
        kinds = (DATA_VOLUMES, resources.PERSISTENT_VOLUME_CLAIMS)
        left = [await uploadclaims.get(client, kind, target.name, target.namespace) for kind in kinds]
        return left == [None, None]

    await _wait(f"the former DataVolume or claim {target.name} is not gone", is_gone)
    wanted = datasource.data_volume(_NAMESPACE, datasource.UPLOAD, DISK_BYTES, name=target.name)
    made = await client.create(DATA_VOLUMES, wanted)
    say(f"DataVolume {target.namespace}/{target.name} created")
    return made


async def _lead(client: Client, name: str) -> None:
    """Have the DataSource lead to the volume `name`, and wait until CDI has seen it: then nothing that
    starts from it takes an older one. What users made of its labels stays.
    """
    wanted = datasource.data_source(_NAMESPACE, claim=name)
    found = await uploadclaims.get(client, DATA_SOURCES, datasource.NAME, _NAMESPACE)
    if found is None:
        await client.create(DATA_SOURCES, wanted)
    elif get_object(found, "spec", "source") != wanted["spec"]["source"]:
        # A source has one kind: another one goes.
        others = dict.fromkeys(get_object(found, "spec", "source"))
        patch = {"spec": {"source": {**others, **wanted["spec"]["source"]}}}
        await client.patch(DATA_SOURCES, datasource.NAME, patch, _NAMESPACE, type="merge")

    async def is_seen() -> bool:
        source = await client.get(DATA_SOURCES, datasource.NAME, _NAMESPACE)
        shown = get_str(source, "status", "source", "pvc", "name")
        return shown == name and meta.is_condition_true(source, "Ready")

    await _wait(f"DataSource {_SOURCE} is not ready", is_seen)
    say(f"DataSource {_SOURCE} leads to {name}")


async def _remove_others(client: Client, name: str) -> None:
    """Remove the DataVolumes of older builds, except those that are being cloned: a later call does."""
    found = await client.list(DATA_VOLUMES, _NAMESPACE, label_selector=datasource.SELECTOR)
    others = [each for each in get_list(found, "items") if meta.name(each) != name]
    if not others:
        return
    clones = get_list(await client.list(VOLUME_CLONE_SOURCES, _NAMESPACE), "items")
    unused = set(superfluous([meta.name(each) for each in others], clones))
    for each in others:
        if meta.name(each) in unused:
            await _delete(client, each)
            say(f"DataVolume {_NAMESPACE}/{meta.name(each)} of an older build removed")
        else:
            say(f"DataVolume {_NAMESPACE}/{meta.name(each)} is being cloned, and stays until the next load")


def superfluous(names: Iterable[str], clones: Iterable[JsonObject]) -> list[str]:
    """Those of the DataVolumes `names` that no clone on its way needs.

    `clones` are the namespace's VolumeCloneSources: CDI makes one beside the source for each claim that is to
    be a clone, and removes it when the claim is filled.
    """
    needed = {get_str(each, "spec", "source", "name") for each in clones}
    return [name for name in names if name not in needed]


async def _delete(client: Client, volume: JsonObject) -> None:
    """Delete this very DataVolume, unless it is gone already."""
    with errors.ignoring(404, 409):
        await client.delete(DATA_VOLUMES, meta.name(volume), _NAMESPACE, uid=meta.uid(volume))


async def _wait(problem: str, check: uploadclaims.Check) -> None:
    """Raises click.ClickException with the `problem` where `check` stays false."""
    if not await uploadclaims.poll(check, _SECONDS):
        raise click.ClickException(f"After {_SECONDS:.0f} s, {problem}.")
