"""The claims and DataVolumes that images are uploaded into: made, checked, waited for (``image-upload``)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import click

from kubecore import resources as core
from kubecore.client import Client, ConnectionFailed
from kubecore.errors import OBJECT_MODIFIED, StatusError, is_forbidden, is_not_found
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api import cdi_labels, resources
from virtplane.cli.virtctl.documents import printable
from virtplane.cli.virtctl.params import quantity

POLL_SECONDS = 2.0
PROCESSING_SECONDS = 24 * 3600.0
_DELETE_AFTER_COMPLETION = f"{cdi_labels.PREFIX}storage.deleteAfterCompletion"
_READ_ONLY = "cannot upload to a readonly volume, use either ReadWriteOnce or ReadWriteMany if supported"
_VOLUME_MODES = {"block": "Block", "filesystem": "Filesystem"}
Check = Callable[[], Awaitable[bool]]
"""Looks whether something has happened. May raise StatusError, ConnectionFailed."""
_UNBOUND_PHASES = ("WaitForFirstConsumer", "PendingPopulation")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The volume to make, as the flags say. `labels` are those of default instance types."""

    size: str
    storage_class: str = ""
    access_mode: str = ""
    volume_mode: str = ""
    """``block``, ``filesystem`` or empty for the storage profile's."""
    force_bind: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """What is uploaded into: a DataVolume and its claim, or (`is_claim`) a claim alone."""

    namespace: str
    name: str
    is_claim: bool = False
    is_archive: bool = False

    @property
    def content_type(self) -> str:
        """CDI's name of what is uploaded."""
        return "archive" if self.is_archive else "kubevirt"

    @property
    def resource(self) -> core.ResourceType:
        """What is made."""
        return core.PERSISTENT_VOLUME_CLAIMS if self.is_claim else resources.DATA_VOLUMES


def storage_spec(wanted: Wanted) -> JsonObject:
    """The volume in a spec's fields. Raises click.ClickException."""
    if wanted.access_mode == "ReadOnlyMany":
        raise click.ClickException(_READ_ONLY)
    try:
        spec: JsonObject = {"resources": {"requests": {"storage": quantity(wanted.size)}}}
    except ValueError as error:
        raise click.ClickException(f"validation failed for size={wanted.size}: {error}") from error
    if wanted.storage_class:
        spec["storageClassName"] = wanted.storage_class
    if wanted.access_mode:
        spec["accessModes"] = [wanted.access_mode]
    if wanted.volume_mode:
        spec["volumeMode"] = _VOLUME_MODES[wanted.volume_mode]
    return spec


def manifest(target: Target, wanted: Wanted) -> JsonObject:
    """The DataVolume or claim to create. Raises click.ClickException."""
    spec, labels = storage_spec(wanted), dict(wanted.labels)
    annotations = {cdi_labels.IMMEDIATE_BINDING: ""} if wanted.force_bind else {}
    if target.is_claim:
        # CDI's webhook completes claims with this label by the profile of their storage class.
        labels = {cdi_labels.APPLY_STORAGE_PROFILE: "true", **labels}
        annotations |= {cdi_labels.UPLOAD_TARGET: "", cdi_labels.CONTENT_TYPE: target.content_type}
        spec.setdefault("accessModes", ["ReadWriteOnce"])
    else:
        spec = {"source": {"upload": {}}, "contentType": target.content_type, "storage": spec}
    named = {"name": target.name, "namespace": target.namespace, "labels": labels, "annotations": annotations}
    metadata = {key: value for key, value in named.items() if value}
    head = {"apiVersion": target.resource.api_version, "kind": target.resource.kind}
    return {**head, "metadata": metadata, "spec": spec}


async def create(client: Client, target: Target, wanted: Wanted) -> None:
    """Create what the upload goes into. Raises StatusError, click.ClickException."""
    document = manifest(target, wanted)
    await check_class(client, wanted.storage_class)
    await client.create(target.resource, document)
    click.echo(f"{target.resource.kind} {target.namespace}/{target.name} created")


async def check_class(client: Client, storage_class: str) -> None:
    """Raises StatusError for a class that does not exist: its claims would wait for ever."""
    if storage_class:
        await client.get(core.STORAGE_CLASSES, storage_class)


async def existing(client: Client, target: Target, *, must_exist: bool) -> JsonObject | None:
    """The claim that takes the upload; None if there is none and there need not be.

    Raises click.ClickException for a claim that takes none, StatusError.
    """
    try:
        claim = await client.get(core.PERSISTENT_VOLUME_CLAIMS, target.name, target.namespace)
    except StatusError as error:
        click.echo(f"PVC {target.namespace}/{target.name} not found ")
        if is_not_found(error) and not must_exist:
            return None
        raise
    if not target.is_claim:
        claim = await _claim_of_data_volume(client, target, claim)
    notes = meta.annotations(claim)
    if notes.get(cdi_labels.POD_PHASE) == "Succeeded":
        raise click.ClickException(f"PVC {target.name} already successfully imported/cloned/updated")
    if not must_exist and cdi_labels.UPLOAD_TARGET not in notes:
        raise click.ClickException(f"PVC {target.name} not available for upload")
    if target.is_archive and notes.get(cdi_labels.CONTENT_TYPE) != "archive":
        raise click.ClickException(f"PVC {target.name} doesn't have archive contentType annotation")
    return claim


async def _claim_of_data_volume(client: Client, target: Target, claim: JsonObject) -> JsonObject:
    """The claim that is filled for the DataVolume: its own, or the one that a populator fills for it."""
    own = f"{target.namespace}/{target.name}"
    notes = meta.annotations(claim)
    try:
        data_volume = await client.get(resources.DATA_VOLUMES, target.name, target.namespace)
    except StatusError as error:
        if not is_not_found(error):
            raise
        if notes.get(_DELETE_AFTER_COMPLETION) == "true" and notes.get(cdi_labels.POD_PHASE) == "Succeeded":
            text = f"DataVolume already garbage-collected: Assuming PVC {own} is successfully populated"
            raise click.ClickException(text) from error
        raise click.ClickException(f"No DataVolume is associated with the existing PVC {own}") from error
    if meta.annotations(data_volume).get(cdi_labels.USE_POPULATOR) != "true":
        return claim
    if get_str(claim, "status", "phase") == "Bound":
        raise click.ClickException(f"PVC {target.name} already successfully populated")
    prime = notes.get(cdi_labels.POPULATOR_PRIME)
    if prime is None:
        raise click.ClickException(f"Unable to get PVC Prime name from PVC {own}")
    try:
        return await client.get(core.PERSISTENT_VOLUME_CLAIMS, prime, target.namespace)
    except StatusError as error:
        raise click.ClickException(f"Unable to get PVC Prime {own}") from error


async def accept_upload(client: Client, claim: JsonObject) -> None:
    """Ask CDI to make an upload server for an existing claim. Raises StatusError."""
    if cdi_labels.UPLOAD_TARGET not in meta.annotations(claim):
        patch: JsonObject = {"metadata": {"annotations": {cdi_labels.UPLOAD_TARGET: ""}}}
        name, namespace = meta.name(claim), meta.namespace(claim)
        await client.patch(core.PERSISTENT_VOLUME_CLAIMS, name, patch, namespace, type="merge")
    click.echo(f"Using existing PVC {meta.namespace(claim)}/{meta.name(claim)}")


async def wait_until_ready(client: Client, target: Target, seconds: float, *, force_bind: bool) -> None:
    """Wait for the upload server. Raises click.ClickException, StatusError."""
    told, state = False, ""

    async def is_ready() -> bool:
        nonlocal told, state
        try:
            found = await client.get(target.resource, target.name, target.namespace)
            state = _state(found)
        except StatusError as error:
            if not is_not_found(error):
                raise
            if not target.is_claim:
                click.echo(f"DV {target.name} not found... ")
            return False
        if not await (
            _is_claim_ready(client, found)
            if target.is_claim
            else _is_volume_ready(client, found, force_bind=force_bind)
        ):
            if not told:
                click.echo(f"Waiting for PVC {target.name} upload pod to be ready...")
            told = True
            return False
        if told:
            click.echo("Pod now ready")
        return True

    if not await poll(is_ready, seconds):
        what = f"timed out after {seconds:.0f} s waiting for the upload pod of PVC {target.name}"
        raise click.ClickException(f"{what}{state}: context deadline exceeded")


def _state(document: JsonObject) -> str:
    """The phase of a claim or DataVolume, and why it is not further, in parentheses."""
    conditions = [each for each in meta.conditions(document) if get_str(each, "status") == "False"]
    words = [get_str(document, "status", "phase"), *(get_str(each, "message") for each in conditions)]
    said = printable("; ".join(dict.fromkeys(filter(None, words))))
    return f" ({said})" if said else ""


async def _is_claim_ready(client: Client, claim: JsonObject) -> bool:
    ready = meta.annotations(claim).get(cdi_labels.POD_READY, "")
    if ready in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    await _refuse_if_unprovisioned(client, claim)
    return False


async def _is_volume_ready(client: Client, data_volume: JsonObject, *, force_bind: bool) -> bool:
    phase = get_str(data_volume, "status", "phase")
    if phase in _UNBOUND_PHASES and not force_bind:
        text = f"cannot upload to DataVolume in {phase} phase"
        raise click.ClickException(f"{text}, make sure the PVC is Bound, or use force-bind flag")
    if phase == "UploadReady":
        return True
    if phase == "Succeeded":
        # Another client has filled it in the meantime; waiting longer brings no upload server.
        raise click.ClickException(f"PVC {meta.name(data_volume)} already successfully populated")
    if phase == "Failed":
        raise click.ClickException(f"DataVolume {meta.name(data_volume)} failed: {_why(data_volume)}")
    await _refuse_if_invalid(client, data_volume)
    claim = await get(
        client,
        core.PERSISTENT_VOLUME_CLAIMS,
        get_str(data_volume, "status", "claimName"),
        meta.namespace(data_volume),
    )
    if claim is not None:
        await _refuse_if_unprovisioned(client, claim)
    return False


async def get(client: Client, resource: core.ResourceType, name: str, namespace: str) -> JsonObject | None:
    """An object; None where there is none. Raises StatusError."""
    if not name:
        return None
    try:
        return await client.get(resource, name, namespace)
    except StatusError as error:
        if is_not_found(error):
            return None
        raise


async def _refuse_if_unprovisioned(client: Client, claim: JsonObject) -> None:
    for message in await _events(client, claim, "ProvisioningFailed"):
        if OBJECT_MODIFIED not in message:
            raise click.ClickException(f"Provisioning failed: {message}")


async def _refuse_if_invalid(client: Client, data_volume: JsonObject) -> None:
    for message in await _events(client, data_volume, "ErrClaimNotValid"):
        raise click.ClickException(f"Claim not valid: {message}")


async def _events(client: Client, about: JsonObject, reason: str) -> list[str]:
    """The messages of an object's events with `reason`; none for whoever may not read events."""
    selector = f"involvedObject.uid={meta.uid(about)},reason={reason}"
    try:
        found = await client.list(core.EVENTS, meta.namespace(about), field_selector=selector)
    except StatusError as error:
        if is_forbidden(error):
            return []
        raise
    return [printable(get_str(event, "message")) for event in get_list(found, "items")]


async def is_filled(client: Client, target: Target) -> bool:
    """Whether the content has arrived and was processed."""
    claim = await get(client, core.PERSISTENT_VOLUME_CLAIMS, target.name, target.namespace)
    return meta.annotations(claim or {}).get(cdi_labels.POD_PHASE) == "Succeeded"


async def restarts(client: Client, target: Target) -> str:
    """How often the upload server has started anew, as CDI notes it."""
    claim = await get(client, core.PERSISTENT_VOLUME_CLAIMS, target.name, target.namespace)
    return meta.annotations(claim or {}).get(cdi_labels.POD_RESTARTS) or "0"


async def wait_until_processed(client: Client, target: Target, restarts_before: str) -> None:
    """Wait for the end of processing. Raises click.ClickException, StatusError.

    An upload server that cannot process what it has taken ends with an error, and starts anew.
    """

    async def is_processed() -> bool:
        claim = await client.get(core.PERSISTENT_VOLUME_CLAIMS, target.name, target.namespace)
        notes = meta.annotations(claim)
        if notes.get(cdi_labels.POD_PHASE) == "Succeeded":
            click.echo("Processing completed successfully")
            return True
        if (notes.get(cdi_labels.POD_RESTARTS) or "0") not in ("0", restarts_before):
            reason = printable(notes.get(cdi_labels.RUNNING_MESSAGE, "")) or "the upload pod was restarted"
            raise click.ClickException(f"Processing of the upload into PVC {target.name} failed: {reason}")
        return False

    if not await poll(is_processed, PROCESSING_SECONDS):
        text = "Timed out waiting for post upload processing to complete"
        raise click.ClickException(f"{text}, please check upload pod status for progress")


async def wait_until_imported(client: Client, target: Target) -> None:
    """Wait until CDI has filled a DataVolume. Raises click.ClickException, StatusError.

    CDI goes on trying where an import fails; its reasons are shown.
    """
    told = ""

    async def is_imported() -> bool:
        nonlocal told
        volume = await get(client, target.resource, target.name, target.namespace)
        phase = get_str(volume, "status", "phase") or "Pending"
        if volume is not None and phase == "Failed":
            raise click.ClickException(f"DataVolume {target.name} failed: {_why(volume)}")
        if phase == "Succeeded" or (volume is None and await is_filled(client, target)):
            click.echo(f"Imported disk {target.name}")
            return True
        text = printable(f"Importing disk {target.name}: {phase} {get_str(volume, 'status', 'progress')}")
        reason = _complaint(volume or {})
        if (text := f"{text}: {reason}" if reason else text) != told:
            told = text
            click.echo(text)
        return False

    if not await poll(is_imported, PROCESSING_SECONDS):
        raise click.ClickException(f"Timed out waiting for the import of disk {target.name}")


def _complaint(data_volume: JsonObject) -> str:
    """Why CDI's worker stopped; empty while it works."""
    running = meta.get_condition(data_volume, "Running") or {}
    is_stopped = get_str(running, "reason") in ("Error", "ImagePullFailed", "ErrImagePull", "OOMKilled")
    return printable(get_str(running, "message")) if is_stopped else ""


def _why(data_volume: JsonObject) -> str:
    running = meta.get_condition(data_volume, "Running") or {}
    return printable(get_str(running, "message")) or "CDI gives no reason"


async def poll(check: Check, seconds: float) -> bool:
    """Whether `check` was true within `seconds`. A server that is away for a while is asked again."""
    told = ""
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    if await check():
                        return True
                    told = ""
                except (ConnectionFailed, StatusError) as error:
                    if isinstance(error, StatusError) and error.code < 500:
                        raise
                    if str(error) != told:
                        told = str(error)
                        click.echo(told, err=True)
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        return False


async def refer(client: Client, target: Target, labels: Mapping[str, str]) -> None:
    """Create the DataSource of the volume's name, or have it lead to the volume. Raises StatusError."""
    own = f"{target.namespace}/{target.name}"
    claim = {"name": target.name, "namespace": target.namespace}
    found = await get(client, resources.DATA_SOURCES, target.name, target.namespace)
    if found is None:
        metadata = {"name": target.name, "namespace": target.namespace, "labels": dict(labels)}
        head = {"apiVersion": resources.DATA_SOURCES.api_version, "kind": "DataSource"}
        await client.create(
            resources.DATA_SOURCES, {**head, "metadata": metadata, "spec": {"source": {"pvc": claim}}}
        )
        click.echo(f"Created a new DataSource {own}")
        return
    # A source has one kind: another one goes.
    others = dict.fromkeys(get_object(found, "spec", "source"))
    patch: JsonObject = {
        "metadata": {"labels": dict(labels)},
        "spec": {"source": {**others, "pvc": claim}},
    }
    await client.patch(resources.DATA_SOURCES, target.name, patch, target.namespace, type="merge")
    click.echo(f"Updated an existing DataSource {own}")
