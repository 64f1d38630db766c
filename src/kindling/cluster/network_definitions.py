"""The kinds of secondary networks, which other clusters get with Multus; kindling has it built in."""

from __future__ import annotations

import asyncio
import time

from kindling.cluster.errors import SetupError
from kindling.cluster.instance import Instance
from kubecore.client import Client, ConnectionFailed, load_kubeconfig
from kubecore.errors import StatusError, is_already_exists
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import CUSTOM_RESOURCE_DEFINITIONS

_GROUP = "k8s.cni.cncf.io"
_SECONDS = 30.0
_POLL_SECONDS = 0.05


def install(instance: Instance) -> None:
    """Create the kinds that are missing; those that somebody else defined stay as they are.

    Raises SetupError.
    """

    async def installing() -> None:
        async with Client(load_kubeconfig(instance.kubeconfig)) as client:
            await create(client)

    try:
        asyncio.run(installing())
    except (StatusError, ConnectionFailed) as error:
        raise SetupError("defining the kinds of secondary networks", str(error)) from error


async def create(client: Client) -> None:
    """Create the kinds that are missing, and wait until they are served. Raises StatusError,
    ConnectionFailed.
    """
    for wanted in definitions():
        try:
            made = await client.create(CUSTOM_RESOURCE_DEFINITIONS, wanted)
        except StatusError as error:
            if not is_already_exists(error):
                raise
            continue
        deadline = time.monotonic() + _SECONDS
        while not meta.is_condition_true(made, "Established") and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
            made = await client.get(CUSTOM_RESOURCE_DEFINITIONS, meta.name(made))


def definitions() -> list[JsonObject]:
    """NetworkAttachmentDefinition and IPAMClaim, with the published schemas."""
    return [_attachment_definition(), _address_claim()]


def _attachment_definition() -> JsonObject:
    config = _text("A CNI configuration, or a list of them, in JSON; by default a file of the node.")
    spec = {"type": "object", "description": "How pods are attached.", "properties": {"config": config}}
    return _definition(
        "network-attachment-definitions",
        "NetworkAttachmentDefinition",
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": _schema("A network that pods can be attached to in addition.", {"spec": spec}),
        },
        singular="network-attachment-definition",
        shortNames=["nad", "net-attach-def"],
    )


def _address_claim() -> JsonObject:
    spec = {
        "type": "object",
        "description": "Which addresses are asked for, of which network.",
        "required": ["interface", "network"],
        "properties": {
            "interface": _constant("Interface", _text("Name of the pod's interface. No effect.")),
            "network": _constant("Network", _text("Name of the network, in its CNI configuration.")),
            "ipRequests": {
                **_addresses("Addresses to get, such as 10.1.0.5/24: one, or one of each family."),
                "x-kubernetes-validations": [
                    {"rule": "self == oldSelf", "message": "IPRequests are immutable"},
                    {
                        "rule": "size(self) != 2 || isCIDR(self[0]) && isCIDR(self[1]) && "
                        "cidr(self[0]).ip().family() != cidr(self[1]).ip().family()",
                        "message": "When 2 CIDRs are set, they must be from different IP families",
                    },
                ],
            },
        },
    }
    conditions = {"type": "array", "description": "Never written.", "items": _condition()}
    status = {
        "type": "object",
        "description": "The addresses that are kept, written by the pod's node.",
        "required": ["ips", "ownerPod"],
        "properties": {
            "ips": _addresses("Addresses that the next pod with this claim gets again."),
            "ownerPod": _text("Name of the last pod that got them."),
            "conditions": conditions,
        },
    }
    return _definition(
        "ipamclaims",
        "IPAMClaim",
        {
            "name": "v1alpha1",
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "schema": _schema(
                "Addresses that outlive the pod that got them.", {"spec": spec, "status": status}
            ),
        },
        singular="ipamclaim",
        listKind="IPAMClaimList",
    )


def _constant(shown: str, schema: JsonObject) -> JsonObject:
    rule = {"rule": "self == oldSelf", "message": f"{shown} is immutable"}
    return {**schema, "x-kubernetes-validations": [rule]}


def _addresses(description: str) -> JsonObject:
    rule = {"rule": "isCIDR(self)", "message": "CIDR is invalid"}
    item = {"type": "string", "x-kubernetes-validations": [rule]}
    return {"type": "array", "description": description, "maxItems": 2, "items": item}


def _text(description: str, **marks: object) -> JsonObject:
    return {"type": "string", "description": description, **marks}


def _condition() -> JsonObject:
    generation = {"type": "integer", "format": "int64", "minimum": 0}
    name = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
    return {
        "type": "object",
        "description": "One observed aspect of the claim.",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": _text("When the status last changed.", format="date-time"),
            "message": _text("What is the matter, for people.", maxLength=32768),
            "observedGeneration": {**generation, "description": "The claim's generation that it is about."},
            "reason": _text("Why, in one word.", minLength=1, maxLength=1024, pattern=name),
            "status": _text("True, False or Unknown.", enum=["True", "False", "Unknown"]),
            "type": _text("Which aspect it is.", maxLength=316),
        },
    }


def _schema(description: str, properties: JsonObject) -> JsonObject:
    # API servers describe these themselves.
    own = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    root = {"type": "object", "description": description, "properties": own | properties}
    return {"openAPIV3Schema": root}


def _definition(plural: str, kind: str, version: JsonObject, **names: object) -> JsonObject:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, **names},
            "versions": [version],
        },
    }
