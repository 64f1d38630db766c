"""The specs of claims and templates as the refusal of a change quotes them."""

from __future__ import annotations

from typing import Any

from kindling.apiserver.kinds.machinery.internal import internal_form
from kubecore.json import JsonObject, get_object

_SELECTORS = [{"CEL": {"Expression": ""}}]
_TOLERATIONS = [{"Key": "", "Operator": "", "Value": "", "Effect": "", "TolerationSeconds": None}]
_CAPACITY = {"Requests": None}
_EXACTLY = {
    "DeviceClassName": "",
    "Selectors": _SELECTORS,
    "AllocationMode": "",
    "Count": 0,
    "AdminAccess": None,
    "Tolerations": _TOLERATIONS,
    "Capacity": _CAPACITY,
}
_ALTERNATIVE = {
    "Name": "",
    "DeviceClassName": "",
    "Selectors": _SELECTORS,
    "AllocationMode": "",
    "Count": 0,
    "Tolerations": _TOLERATIONS,
    "Capacity": _CAPACITY,
}
_DEVICES = {
    "Requests": [{"Name": "", "Exactly": _EXACTLY, "FirstAvailable": [_ALTERNATIVE]}],
    "Constraints": [{"Requests": None, "MatchAttribute": None, "DistinctAttribute": None}],
    "Config": [{"Requests": None, "Opaque": {"Driver": "", "Parameters": None}}],
}
_METADATA = (
    *("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation"),
    *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("labels", "annotations", "ownerReferences", "finalizers", "managedFields"),
)
"""The fields of metadata in the order in which they are written."""


def claim_spec(spec: JsonObject) -> Any:
    """The spec of a claim."""
    return {"Devices": internal_form(get_object(spec, "devices"), _DEVICES)}


def template_spec(spec: JsonObject) -> Any:
    """The spec of a template: the metadata's fields stand beside the claim's spec, as they are published."""
    metadata = get_object(spec, "metadata")
    shown = {name: metadata[name] for name in _METADATA if metadata.get(name)}
    return {**shown, "Spec": claim_spec(get_object(spec, "spec"))}
