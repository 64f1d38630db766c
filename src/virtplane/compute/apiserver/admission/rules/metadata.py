"""Rules on labels and annotations of instances and of templates."""

from __future__ import annotations

from collections.abc import Iterator

from virtplane.api import labels
from virtplane.api.config import ClusterConfig
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.serving.responses import NOT_SUPPORTED, Cause

_COMPONENT_ACCOUNTS = (
    "kubevirt-apiserver",
    "kubevirt-controller",
    "kubevirt-handler",
    "kubevirt-synchronization-controller",
)


def is_component(user: str, namespace: str) -> bool:
    """Whether `user` is one of the components of the installation in `namespace` (the operator is not)."""
    return user in {f"system:serviceaccount:{namespace}:{account}" for account in _COMPONENT_ACCOUNTS}


def reserved_labels(metadata: ObjectMeta) -> dict[str, str]:
    """The labels among these that only components set."""
    own = metadata.labels
    return {key: own[key] for key in labels.RESERVED_INSTANCE_LABELS if key in own}


def metadata(path: str, document: ObjectMeta, config: ClusterConfig, user: str) -> Iterator[Cause]:
    """Reserved labels, and annotations whose feature is not on. `path` is that of the metadata."""
    if reserved_labels(document) and not is_component(user, config.namespace):
        yield Cause(
            "creation of the following reserved kubevirt.io/ labels on a VMI object is prohibited",
            f"{path}.labels",
            NOT_SUPPORTED,
        )
    annotations, field = document.annotations, f"{path}.annotations"
    if annotations.get(labels.IGNITION_DATA) and not config.gate("ExperimentalIgnitionSupport"):
        yield Cause(
            "ExperimentalIgnitionSupport feature gate is not enabled in kubevirt-config,"
            f" invalid entry {field}.{labels.IGNITION_DATA}",
            field,
        )
    if annotations.get(labels.HOOK_SIDECARS) and not config.gate("Sidecar"):
        yield Cause(
            "sidecar feature gate is not enabled in kubevirt-config,"
            f" invalid entry {field}.{labels.HOOK_SIDECARS}",
            field,
        )
