"""Objects of storage.k8s.io."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kindling.apiserver.kinds.core.pods.warnings import old_label
from kindling.apiserver.kinds.core.volumes.sources import csi_driver_name
from kindling.apiserver.kinds.machinery.checks import amount, immutable, messages, one_of, required_text
from kindling.apiserver.kinds.machinery.fields import check_fields, choice, given, needed
from kindling.apiserver.kinds.machinery.internal import internal_form
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    required,
    too_long,
    too_many,
)
from kubecore.objects.quantity import Quantity
from kubecore.objects.selectors import validate_label_selector_object

MAX_PARAMETERS = 512
MAX_PARAMETER_BYTES = 256 * 1024
_SPEC = FieldPath("spec")
_DRIVER_MODES = ("Ephemeral", "Persistent")


def _provisioner(value: str, path: FieldPath) -> list[FieldError]:
    if not value:
        return [required(path)]
    return messages(path, value.lower(), names.is_qualified_name)


def _parameters(parameters: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    if len(parameters) > MAX_PARAMETERS:
        yield too_long(path, MAX_PARAMETERS)
    for key in parameters:
        if not key:
            yield invalid(path, key, "field can not be empty.")
    if sum(len(key) + len(str(value)) for key, value in parameters.items()) > MAX_PARAMETER_BYTES:
        yield too_long(path, MAX_PARAMETER_BYTES)


def validate_class(obj: JsonObject) -> Iterator[FieldError]:
    """A StorageClass."""
    yield from _provisioner(obj.get("provisioner", ""), FieldPath("provisioner"))
    yield from _parameters(get_object(obj, "parameters"), FieldPath("parameters"))
    policy = obj.get("reclaimPolicy")
    if policy:
        yield from one_of("reclaimPolicy", policy, ("Delete", "Retain"))
    mode = obj.get("volumeBindingMode")
    if mode is None:
        yield required("volumeBindingMode")
    else:
        yield from one_of("volumeBindingMode", mode, ("Immediate", "WaitForFirstConsumer"))
    terms: list[dict[str, Any]] = []
    for position, term in enumerate(get_list(obj, "allowedTopologies")):
        path = FieldPath("allowedTopologies").index(position).child("matchLabelExpressions")
        shown = {item.get("key", ""): sorted(item.get("values") or ()) for item in _expressions(term)}
        if shown in terms:
            yield duplicate(path, "")
        terms.append(shown)
        keys: set[str] = set()
        for number, expression in enumerate(get_list(term, "matchLabelExpressions")):
            here = path.index(number)
            yield from messages(here.child("key"), expression.get("key", ""), names.is_qualified_name)
            yield from check_fields(expression, here, *needed("values"))
            values = expression.get("values") or []
            yield from (
                duplicate(here.child("values").index(at), value)
                for at, value in enumerate(values)
                if value in values[:at]
            )
            if expression.get("key", "") in keys:
                yield duplicate(here.child("key"), expression.get("key", ""))
            keys.add(expression.get("key", ""))


def _expressions(term: JsonObject) -> list[JsonObject]:
    return get_list(term, "matchLabelExpressions")


def driver_warnings(obj: JsonObject) -> list[str]:
    """Tokens that a driver may log."""
    spec = get_object(obj, "spec")
    if not spec.get("tokenRequests") or spec.get("serviceAccountTokenInSecrets") is not None:
        return []
    return [
        "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent "
        "possible logging of tokens in volume attributes"
    ]


def class_warnings(obj: JsonObject) -> list[str]:
    """Deprecated topology labels."""
    found = []
    for position, term in enumerate(get_list(obj, "allowedTopologies")):
        for number, expression in enumerate(get_list(term, "matchLabelExpressions")):
            text = old_label(expression.get("key", ""))
            if text:
                at = f"allowedTopologies[{position}].matchLabelExpressions[{number}].key"
                found.append(f"{at}: {expression['key']} is {text}")
    return found


def validate_driver(obj: JsonObject) -> Iterator[FieldError]:
    """A CSIDriver."""
    yield from csi_driver_name(FieldPath("metadata", "name"), get_object(obj, "metadata").get("name", ""))
    spec = get_object(obj, "spec")
    for field in ("attachRequired", "podInfoOnMount", "storageCapacity"):
        if spec.get(field) is None:
            yield required(_SPEC.child(field))
    yield from check_fields(
        spec, _SPEC, given("fsGroupPolicy", choice("File", "None", "ReadWriteOnceWithFSType"))
    )
    audiences: set[str] = set()
    for position, request in enumerate(get_list(spec, "tokenRequests")):
        at = _SPEC.child("tokenRequests").index(position)
        audience = request.get("audience", "")
        if audience in audiences:
            yield duplicate(at.child("audience"), audience)
        audiences.add(audience)
        seconds = request.get("expirationSeconds")
        if seconds is not None and seconds < 600:
            text = "may not specify a duration less than 10 minutes"
            yield invalid(at.child("expirationSeconds"), seconds, text)
    for mode in get_list(spec, "volumeLifecycleModes"):
        yield from one_of(_SPEC.child("volumeLifecycleModes"), mode, _DRIVER_MODES)


def validate_csi_node(obj: JsonObject) -> Iterator[FieldError]:
    """A CSINode."""
    seen: set[str] = set()
    for position, driver in enumerate(get_object(obj, "spec").get("drivers") or ()):
        at = _SPEC.child("drivers").index(position)
        name = driver.get("name", "")
        yield from csi_driver_name(at.child("name"), name)
        if name in seen:
            yield duplicate(at.child("name"), name)
        seen.add(name)
        yield from required_text(at.child("nodeID"), driver.get("nodeID"))
        count = get_object(driver, "allocatable").get("count")
        if count is not None and count < 0:
            yield invalid(at.child("allocatable", "count"), count, "must be greater than or equal to 0")
        keys: set[str] = set()
        for key in driver.get("topologyKeys") or ():
            here = at.child("topologyKeys")
            if not key:
                yield required(here)
            if key in keys:
                yield duplicate(here, key)
            keys.add(key)
            yield from messages(here, key, names.is_qualified_name)


def validate_csi_node_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """A driver's entry may come and go, but not change (its limits excepted)."""
    yield from validate_csi_node(new)
    known = {driver.get("name"): driver for driver in get_object(old, "spec").get("drivers") or ()}
    for driver in get_object(new, "spec").get("drivers") or ():
        before = known.get(driver.get("name"))
        if before is not None:
            changed = any(driver.get(field) != before.get(field) for field in ("nodeID", "topologyKeys"))
            shown = internal_form(driver, _INTERNAL_DRIVER)
            if changed:
                yield from immutable(_SPEC.child("drivers"), shown, None)


_INTERNAL_DRIVER = {"Name": "", "NodeID": "", "TopologyKeys": None, "Allocatable": {"Count": None}}


def validate_capacity(obj: JsonObject) -> Iterator[FieldError]:
    """A CSIStorageCapacity."""
    yield from messages("storageClassName", obj.get("storageClassName", ""), names.is_dns1123_subdomain)
    if obj.get("nodeTopology") is not None:
        yield from validate_label_selector_object(obj["nodeTopology"], FieldPath("nodeTopology"))
    for field in ("capacity", "maximumVolumeSize"):
        if obj.get(field) is not None and amount(obj[field]) < Quantity.parse("0"):
            yield invalid(field, str(obj[field]), "must be greater than or equal to 0")


def validate_attributes_class(obj: JsonObject) -> Iterator[FieldError]:
    """A VolumeAttributesClass."""
    yield from _provisioner(obj.get("driverName", ""), FieldPath("driverName"))
    parameters = get_object(obj, "parameters")
    if not parameters:
        yield required("parameters", "must contain at least one key/value pair")
    yield from _parameters(parameters, FieldPath("parameters"))


def validate_attributes_class_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Driver and parameters stay."""
    for field in ("driverName", "parameters"):
        if new.get(field) != old.get(field):
            yield forbidden(field, f"updates to {field} are forbidden.")


def validate_attachment(obj: JsonObject) -> Iterator[FieldError]:
    """A VolumeAttachment."""
    spec = get_object(obj, "spec")
    yield from _provisioner_of_attachment(spec.get("attacher", ""))
    source = get_object(spec, "source")
    if spec.get("nodeName"):
        yield from messages(_SPEC.child("nodeName"), spec["nodeName"], names.is_dns1123_subdomain)
    else:
        yield required(_SPEC.child("nodeName"))
    volume, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    at = _SPEC.child("source")
    if volume is None and inline is None:
        yield required(at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName")
    elif volume is not None and inline is not None:
        yield forbidden(at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName")
    elif volume is not None and not volume:
        yield required(at.child("persistentVolumeName"), "must specify non empty persistentVolumeName")
    metadata = get_object(obj, "status", "attachmentMetadata")
    if len(metadata) > MAX_PARAMETERS:
        yield too_many(FieldPath("status", "attachmentMetadata"), len(metadata), MAX_PARAMETERS)


def _provisioner_of_attachment(attacher: str) -> Iterable[FieldError]:
    at = _SPEC.child("attacher")
    if not attacher:
        return [required(at)]
    return csi_driver_name(at, attacher)
