"""Which field labels a kind knows."""

from __future__ import annotations

import pytest
from tests.support.apiserver import generic_definition

from kindling.apiserver.kinds.served import builtin_definitions
from kindling.apiserver.registry.definition import ResourceDefinition
from kindling.apiserver.registry.reads import matcher
from kubecore.errors import StatusError
from kubecore.resources import ResourceType

_DEFINITIONS = {
    (each.resource.group, each.resource.kind): each for each in builtin_definitions() if each.recorded
}


@pytest.mark.parametrize(
    ("group", "kind", "label"),
    [
        ("", "Namespace", "metadata.namespace"),
        ("", "Node", "metadata.namespace"),
        ("certificates.k8s.io", "CertificateSigningRequest", "metadata.namespace"),
        ("events.k8s.io", "Event", "involvedObject.kind"),
        ("events.k8s.io", "Event", "reportingComponent"),
        ("", "Event", "regarding.kind"),
    ],
)
def test_labels_of_other_kinds_are_refused(group: str, kind: str, label: str) -> None:
    with pytest.raises(StatusError, match=f"field label not supported: {label}"):
        matcher(_DEFINITIONS[group, kind], "", f"{label}=x")


@pytest.mark.parametrize(
    ("group", "kind", "label"),
    [
        ("", "PersistentVolume", "metadata.namespace"),
        ("", "Pod", "metadata.namespace"),
        ("", "Event", "involvedObject.kind"),
        ("events.k8s.io", "Event", "regarding.kind"),
        ("events.k8s.io", "Event", "reportingController"),
    ],
)
def test_a_kind_knows_its_own_labels(group: str, kind: str, label: str) -> None:
    assert matcher(_DEFINITIONS[group, kind], "", f"{label}=x")


@pytest.mark.parametrize("fields", [(), ("spec.color",)])
def test_only_custom_resources_in_namespaces_know_their_namespace(fields: tuple[str, ...]) -> None:
    def definition(*, namespaced: bool) -> ResourceDefinition:
        things = ResourceType("example.com", "v1", "things", "Thing", namespaced)
        return generic_definition(things, custom=True, field_labels=fields)

    assert matcher(definition(namespaced=True), "", "metadata.namespace=x")
    with pytest.raises(StatusError, match=r"field label not supported: metadata\.namespace"):
        matcher(definition(namespaced=False), "", "metadata.namespace=")
    assert matcher(definition(namespaced=False), "", "metadata.name=x")
