"""VirtualMachineExports: making them with a token, waiting for their links, and what these lead to."""

from __future__ import annotations

import asyncio
import base64
import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

import click

from kubecore import resources
from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_list, get_object, get_str
from virtplane.api import resources as kinds
from virtplane.api.resources import VIRTUAL_MACHINE_EXPORTS

Say = Callable[[str], None]
"""Tells the user something; where, depends on what standard output is for."""

_POLL_SECONDS = 2.0
_TOKEN_LETTERS, _TOKEN_LENGTH = string.ascii_letters + string.digits, 20
_COMPRESSED = ("gzip", "tar.gz")
_MACHINES = ("VirtualMachine", "VirtualMachineSnapshot", "VirtualMachineTemplate")

SOURCES: Mapping[str, tuple[str, str]] = {
    "vm": (kinds.VIRTUAL_MACHINES.group, kinds.VIRTUAL_MACHINES.kind),
    "snapshot": (kinds.VIRTUAL_MACHINE_SNAPSHOTS.group, kinds.VIRTUAL_MACHINE_SNAPSHOTS.kind),
    "pvc": ("", "PersistentVolumeClaim"),
    "vmtemplate": ("template.kubevirt.io", "VirtualMachineTemplate"),
}
"""API group and kind of what the flags export."""


@dataclass(frozen=True, slots=True)
class Export:
    """The export that a command is about."""

    namespace: str
    name: str
    source: tuple[str, str] | None = None
    """The flag of the source's kind, and the source's name."""
    ttl: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """What messages call it."""
        return f"VirtualMachineExport '{self.namespace}/{self.name}'"


@dataclass(frozen=True, slots=True)
class Link:
    """Where something is downloaded."""

    url: str
    is_compressed: bool
    authority: str
    """Authorities of the server's certificate (PEM), beside those of the system."""


async def find(client: Client, export: Export) -> JsonObject | None:
    """The stored export, if there is one. Raises StatusError."""
    try:
        return await client.get(VIRTUAL_MACHINE_EXPORTS, export.name, export.namespace)
    except StatusError as error:
        if is_not_found(error):
            return None
        raise


async def create(client: Client, export: Export, say: Say) -> bool:
    """Make the export and the secret with its token; False if it exists. Raises StatusError."""
    if await find(client, export) is not None:
        return False
    assert export.source is not None
    group, kind = SOURCES[export.source[0]]
    secret = f"secret-{export.name}"
    metadata: JsonObject = {"name": export.name, "namespace": export.namespace}
    for key, pairs in (("labels", export.labels), ("annotations", export.annotations)):
        if pairs:
            metadata[key] = dict(pairs)
    spec: JsonObject = {
        "source": {"apiGroup": group, "kind": kind, "name": export.source[1]},
        "tokenSecretRef": secret,
    }
    if export.ttl:
        spec["ttlDuration"] = export.ttl
    head = {"kind": VIRTUAL_MACHINE_EXPORTS.kind, "apiVersion": VIRTUAL_MACHINE_EXPORTS.api_version}
    made = await client.create(VIRTUAL_MACHINE_EXPORTS, {**head, "metadata": metadata, "spec": spec})
    await _create_token(client, export, secret, made)
    say(f"{export.shown} created successfully")
    return True


async def _create_token(client: Client, export: Export, secret: str, made: JsonObject) -> None:
    token = "".join(secrets.choice(_TOKEN_LETTERS) for _ in range(_TOKEN_LENGTH))
    owner = {
        "apiVersion": VIRTUAL_MACHINE_EXPORTS.api_version,
        "kind": VIRTUAL_MACHINE_EXPORTS.kind,
        "name": export.name,
        "uid": get_str(made, "metadata", "uid"),
        "controller": True,
        "blockOwnerDeletion": False,
    }
    wish: JsonObject = {
        "kind": "Secret",
        "apiVersion": "v1",
        "metadata": {"name": secret, "namespace": export.namespace, "ownerReferences": [owner]},
        "data": {"token": base64.b64encode(token.encode()).decode()},
        "type": "Opaque",
    }
    try:
        await client.create(resources.SECRETS, wish)
    except StatusError as error:
        # The secret of an earlier export of this name has a token as good as this one.
        if error.code != 409:
            raise


async def delete(client: Client, export: Export, say: Say) -> None:
    """Delete the export. Raises StatusError."""
    try:
        await client.delete(VIRTUAL_MACHINE_EXPORTS, export.name, export.namespace)
    except StatusError as error:
        if not is_not_found(error):
            raise
        say(f"{export.shown} does not exist")
    else:
        say(f"{export.shown} deleted successfully")


async def ready(client: Client, export: Export, side: str, seconds: float, say: Say) -> JsonObject:
    """The export, once it has links of the `side` (internal, external). Raises click.ClickException."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                found = await find(client, export)
                missing = _missing(found, side)
                if found is not None and not missing:
                    return found
                what = f"waiting for VM Export {export.name} {missing}..."
                say(
                    what
                    if found
                    else f"couldn't get VM Export {export.name}, waiting for it to be created..."
                )
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        raise click.ClickException("context deadline exceeded") from error


def _missing(found: JsonObject | None, side: str) -> str:
    """What the export has not yet."""
    if found is None or get_str(found, "status", "phase") != "Ready":
        return "status to be ready"
    return "" if get_object(found, "status", "links", side) else f"{side} links to be available"


def volume_link(found: JsonObject, export: Export, side: str, volume: str) -> Link:
    """Where a volume is downloaded, compressed if possible. Raises click.ClickException."""
    volumes = get_list(found, "status", "links", side, "volumes")
    if not volumes:
        raise click.ClickException(f"unable to access the volume info from {_quoted(export)}")
    if len(volumes) > 1 and not volume:
        text = f"detected more than one downloadable volume in {_quoted(export)}"
        raise click.ClickException(f"{text}: Select the expected volume using the --volume flag")
    chosen = [item for item in volumes if not volume or item.get("name") == volume]
    formats = [form for item in chosen for form in get_list(item, "formats")]
    compressed = [form for form in formats if form.get("format") in _COMPRESSED]
    others = [form for form in formats if form.get("format") == "raw"]
    for form in (*compressed, *others):
        return Link(get_str(form, "url"), form in compressed, _authority(found, side))
    raise click.ClickException(f"unable to get a valid URL from {_quoted(export)}")


def manifest_link(found: JsonObject, export: Export, side: str, kind: str) -> Link:
    """Where a manifest of the kind is downloaded. Raises click.ClickException."""
    source = get_str(found, "spec", "source", "kind")
    if kind == "oci" and source not in _MACHINES:
        raise click.ClickException(f'OCI export is not supported for "{source}" sources')
    for item in get_list(found, "status", "links", side, "manifests"):
        if item.get("type") == kind:
            return Link(get_str(item, "url"), False, _authority(found, side))
    raise click.ClickException(f"unable to access the manifest info from {_quoted(export)}")


def at(url: str, host: str) -> str:
    """The URL at another host and port, if one is given."""
    return urlunsplit(urlsplit(url)._replace(netloc=host)) if host else url


async def token(client: Client, found: JsonObject, export: Export) -> str:
    """The token that downloads need. Raises StatusError."""
    name = get_str(found, "status", "tokenSecretRef") or get_str(found, "spec", "tokenSecretRef")
    secret = await client.get(resources.SECRETS, name, export.namespace)
    return base64.b64decode(get_str(secret, "data", "token")).decode()


def _authority(found: JsonObject, side: str) -> str:
    return get_str(found, "status", "links", side, "cert")


def _quoted(export: Export) -> str:
    return f"'{export.namespace}/{export.name}' VirtualMachineExport"
