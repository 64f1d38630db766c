"""Objects of storage.k8s.io."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kindling.apiserver.kinds.core.pods.warnings import old_label
from kindling.apiserver.kinds.core.volumes.sources import csi_driver_name
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import immutable, messages, one_of, quantity
from kindling.apiserver.kinds.machinery.internal import internal_form
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, duplicate, forbidden, invalid, required, too_long

MAX_PARAMETERS = 512
MAX_PARAMETER_BYTES = 256 * 1024
_SPEC = FieldPath("spec")
_TEN_MINUTES = "may not specify a duration less than 10 minutes"


def _provisioner(path: FieldPath, value: str) -> list[FieldError]:
    return messages(path, value.lower(), names.is_qualified_name)


def _parameters(path: FieldPath, parameters: JsonObject) -> Iterator[FieldError]:
    yield from f.shorter(MAX_PARAMETERS)(path, parameters)
    if "" in parameters:
        yield invalid(path, "", "field can not be empty.")
    if sum(len(key) + len(str(value)) for key, value in parameters.items()) > MAX_PARAMETER_BYTES:
        yield too_long(path, MAX_PARAMETER_BYTES)


def _topologies(path: FieldPath, topologies: list[JsonObject]) -> Iterator[FieldError]:
    terms: list[JsonObject] = []
    for position, term in enumerate(topologies):
        here, expressions = path.index(position).child("matchLabelExpressions"), _expressions(term)
        shown = {item.get("key", ""): sorted(item.get("values") or ()) for item in expressions}
        if shown in terms:
            yield duplicate(here, "")
        terms.append(shown)
        yield from _EXPRESSIONS(here, expressions)


_EXPRESSIONS = f.items(f.always("key", "", f.QUALIFIED), f.must("values", f.items(f.Once())), f.Once("key"))
validate_class = f.document(
    f.must("provisioner", _provisioner),
    f.may("parameters", _parameters),
    f.may("reclaimPolicy", f.choice("Delete", "Retain")),
    f.must("volumeBindingMode", f.choice("Immediate", "WaitForFirstConsumer"), given=True),
    f.may("allowedTopologies", _topologies),
)
"""A StorageClass."""


def _expressions(term: JsonObject) -> list[JsonObject]:
    return get_list(term, "matchLabelExpressions")


def driver_warnings(obj: JsonObject, old: JsonObject | None) -> list[str]:
    """Tokens that a driver may log."""
    spec = get_object(obj, "spec")
    if (
        old is not None
        or not spec.get("tokenRequests")
        or spec.get("serviceAccountTokenInSecrets") is not None
    ):
        return []
    return [
        "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent "
        "possible logging of tokens in volume attributes"
    ]


def class_warnings(obj: JsonObject, old: JsonObject | None) -> Iterator[str]:
    """Deprecated topology labels."""
    for position, term in enumerate(get_list(obj, "allowedTopologies")):
        for number, expression in enumerate(get_list(term, "matchLabelExpressions")):
            text = old_label(expression.get("key", ""))
            if text:
                at = f"allowedTopologies[{position}].matchLabelExpressions[{number}].key"
                yield f"{at}: {expression['key']} is {text}"


def _lifecycle_modes(path: FieldPath, modes: list[str]) -> list[FieldError]:
    return [error for mode in modes for error in one_of(path, mode, ("Ephemeral", "Persistent"))]


validate_driver = f.document(
    f.part("metadata", f.may("name", f.shorter(63))),
    f.part(
        "spec",
        f.must("attachRequired", given=True),
        f.must("podInfoOnMount", given=True),
        f.must("storageCapacity", given=True),
        f.given("fsGroupPolicy", f.choice("File", "None", "ReadWriteOnceWithFSType")),
        f.may(
            "tokenRequests",
            f.items(f.Once("audience"), f.given("expirationSeconds", f.at_least(600, _TEN_MINUTES))),
        ),
        f.may("volumeLifecycleModes", _lifecycle_modes),
    ),
)
"""A CSIDriver."""


def _topology_keys(path: FieldPath, topology: list[str]) -> Iterator[FieldError]:
    for position, key in enumerate(topology):
        if not key:
            yield required(path)
        if key in topology[:position]:
            yield duplicate(path, key)
        yield from f.QUALIFIED(path, key)


validate_csi_node = f.spec(
    f.may(
        "drivers",
        f.items(
            f.always("name", "", csi_driver_name),
            f.Once("name"),
            f.must("nodeID"),
            f.part("allocatable", f.given("count", f.at_least(0))),
            f.may("topologyKeys", _topology_keys),
        ),
    )
)
"""A CSINode."""


def validate_csi_node_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """A driver's entry may come and go, but not change (its limits excepted)."""
    yield from validate_csi_node(new)
    known = {driver.get("name"): driver for driver in get_object(old, "spec").get("drivers") or ()}
    for driver in get_object(new, "spec").get("drivers") or ():
        before = known.get(driver.get("name"))
        if before is not None:
            changed = any(driver.get(field) != before.get(field) for field in ("nodeID", "topologyKeys"))
            # Its limits may change, so that they are left out of the comparison and of what it says.
            shown = internal_form(driver, _INTERNAL_DRIVER) | {"Allocatable": None}
            if changed:
                yield from immutable(_SPEC.child("drivers"), shown, None)


_INTERNAL_DRIVER = {"Name": "", "NodeID": "", "TopologyKeys": None, "Allocatable": None}


validate_capacity = f.document(
    f.always("storageClassName", "", f.SUBDOMAIN),
    f.given("nodeTopology", f.selector),
    f.given("capacity", quantity),
    f.given("maximumVolumeSize", quantity),
)
"""A CSIStorageCapacity."""
validate_attributes_class = f.document(
    f.must("driverName", _provisioner),
    f.must("parameters", _parameters, detail="must contain at least one key/value pair"),
)
"""A VolumeAttributesClass."""


def validate_attributes_class_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Driver and parameters are immutable."""
    for field in ("driverName", "parameters"):
        if new.get(field) != old.get(field):
            yield forbidden(field, f"updates to {field} are forbidden.")


def _attached(path: FieldPath, source: JsonObject) -> Iterator[FieldError]:
    volume, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    if volume is None and inline is None:
        yield required(path, "must specify exactly one of inlineVolumeSpec and persistentVolumeName")
    elif volume is not None and inline is not None:
        yield forbidden(path, "must specify exactly one of inlineVolumeSpec and persistentVolumeName")
    elif volume == "":
        yield required(path.child("persistentVolumeName"), "must specify non empty persistentVolumeName")


validate_attachment = f.document(
    f.part(
        "spec",
        f.must("attacher", csi_driver_name),
        f.must("nodeName", f.SUBDOMAIN),
        f.part("source", _attached),
    ),
    f.part("status", f.may("attachmentMetadata", f.fewer(MAX_PARAMETERS))),
)
"""A VolumeAttachment."""


def validate_new_attachment(obj: JsonObject) -> Iterator[FieldError]:
    """A new VolumeAttachment: a volume has a name that it can have."""
    yield from validate_attachment(obj)
    source = get_object(obj, "spec", "source")
    yield from f.check_fields(source, _SPEC.child("source"), f.may("persistentVolumeName", f.SUBDOMAIN))


def validate_attachment_update(new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
    """A change of an attachment, whose spec stays."""
    return validate_attachment(new)
