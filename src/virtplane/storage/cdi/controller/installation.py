"""The CDI object, and the labels and owner that it gives to what the controllers make."""

from __future__ import annotations

from kubecore.runtime import Informer
from virtplane.api import cdi_labels as names
from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.api.meta_v1 import OwnerReference
from virtplane.api.resources import CDIS
from virtplane.cluster.objects import controller_reference

_COPIED = ("app.kubernetes.io/part-of", "app.kubernetes.io/version")
"""Labels of the CDI object that everything made for it gets."""


def active(installations: Informer[CDI]) -> CDI | None:
    """The CDI object that counts: the oldest one that is not being deleted."""
    living = [each for each in installations.list() if not each.metadata.is_being_deleted]
    return min(living, key=lambda each: (each.metadata.creation_timestamp, each.metadata.name), default=None)


def recommended_labels(installation: CDI | None) -> dict[str, str]:
    """The labels of everything that the controllers make."""
    labels = {
        "app.kubernetes.io/component": "storage",
        "app.kubernetes.io/managed-by": "cdi-controller",
    }
    if installation is not None:
        given = installation.metadata.labels
        labels |= {name: given[name] for name in _COPIED if given.get(name)}
    return labels


def singleton_labels(installation: CDI | None) -> dict[str, str]:
    """The labels of objects without namespace that belong to the installation."""
    return {"app": names.APP, names.COMPONENT: "", **recommended_labels(installation)}


def owner_reference(installation: CDI) -> OwnerReference:
    """The reference to the CDI object, with which an object goes when CDI is removed."""
    return controller_reference(installation, CDIS)
