"""The identity of a product: its names, labels and annotations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.names import is_label_value

MANAGED_BY = "app.kubernetes.io/managed-by"
COMPONENT = "app.kubernetes.io/component"
PART_OF = "app.kubernetes.io/part-of"
VERSION = "app.kubernetes.io/version"
_NAMED = {"productComponent": COMPONENT, "productName": PART_OF, "productVersion": VERSION}
"""Labels that the custom resource may name, by its fields."""
_WITH_PODS = ("Deployment", "DaemonSet")
EMPTY: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Product:
    """The names by which an operator recognizes its objects, and by which users find them."""

    operator: str
    """The operator's name, which ``app.kubernetes.io/managed-by`` holds."""
    component: str
    """``app.kubernetes.io/component``, unless the custom resource names another one."""
    label: str
    """A label that every object has: the name of its component, empty where it serves all of them."""
    digest_annotation: str
    """Says which wanted state an object was last written for."""
    customizer_annotation: str
    """Says which of the user's patches an object was written with."""
    certificate_annotation: str
    """On what carries a bundle of authorities: the secret of the certificate that it verifies."""

    @property
    def selector(self) -> str:
        """Selects everything that the operator manages."""
        return f"{MANAGED_BY}={self.operator}"

    def labels(self, component: str = "") -> dict[str, str]:
        """The labels of an object of `component`."""
        return {self.label: component}

    def mark_managed(
        self, document: JsonObject, spec: JsonObject, annotations: Mapping[str, str] = EMPTY
    ) -> None:
        """Label an object, and the pods of a workload, as the operator's, and annotate both.

        `spec` is that of the custom resource; names in it that no label can hold are left out.
        """
        own = {MANAGED_BY: self.operator, COMPONENT: self.component}
        for field, label in _NAMED.items():
            value = get_str(spec, field)
            if value and not is_label_value(value):
                own[label] = value
        marked = [document["metadata"]]
        if document["kind"] in _WITH_PODS:
            marked.append(get_object(document, "spec", "template", "metadata"))
        for metadata in marked:
            metadata.setdefault("labels", {}).update(own)
            if annotations:
                metadata.setdefault("annotations", {}).update(annotations)
