"""The kinds of products beside KubeVirt that recorded cases use: served, with nobody acting on them.

The cases play the controllers of these kinds themselves. What the kinds look like inside does not matter to
them, so that every field is admitted.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.json import JsonObject

_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@dataclass(frozen=True)
class Neighbour:
    """One custom resource of somebody else."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    has_status: bool = True

    def definition(self) -> JsonObject:
        """Its CustomResourceDefinition."""
        name = f"{self.plural}.{self.group}"
        metadata: JsonObject = {"name": name}
        if self.group.endswith(".k8s.io"):
            # Groups of that domain need to say that they were reviewed; these were, long ago.
            metadata["annotations"] = {"api-approved.kubernetes.io": "unapproved, a definition for tests"}
        version: JsonObject = {
            "name": self.version,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": _ANYTHING},
        }
        if self.has_status:
            version["subresources"] = {"status": {}}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": metadata,
            "spec": {
                "group": self.group,
                "scope": "Namespaced" if self.namespaced else "Cluster",
                "names": {"plural": self.plural, "kind": self.kind, "singular": self.kind.lower()},
                "versions": [version],
            },
        }


_CDI, _SNAPSHOT = "cdi.kubevirt.io", "snapshot.storage.k8s.io"
NEIGHBOURS = (
    Neighbour(_CDI, "v1beta1", "cdis", "CDI", namespaced=False, has_status=False),
    Neighbour(_CDI, "v1beta1", "cdiconfigs", "CDIConfig", namespaced=False, has_status=False),
    Neighbour(_CDI, "v1beta1", "datavolumes", "DataVolume"),
    Neighbour(_CDI, "v1beta1", "datasources", "DataSource"),
    Neighbour(_CDI, "v1beta1", "storageprofiles", "StorageProfile", namespaced=False),
    Neighbour(_SNAPSHOT, "v1", "volumesnapshots", "VolumeSnapshot"),
    Neighbour(_SNAPSHOT, "v1", "volumesnapshotcontents", "VolumeSnapshotContent", namespaced=False),
    Neighbour(
        _SNAPSHOT, "v1", "volumesnapshotclasses", "VolumeSnapshotClass", namespaced=False, has_status=False
    ),
    Neighbour(
        "k8s.cni.cncf.io",
        "v1",
        "network-attachment-definitions",
        "NetworkAttachmentDefinition",
        has_status=False,
    ),
)

OBJECTS: tuple[tuple[str, JsonObject], ...] = (
    (
        "cdis",
        {"apiVersion": f"{_CDI}/v1beta1", "kind": "CDI", "metadata": {"name": "cdi"}, "spec": {}},
    ),
    (
        "cdiconfigs",
        {
            "apiVersion": f"{_CDI}/v1beta1",
            "kind": "CDIConfig",
            "metadata": {"name": "config"},
            "spec": {},
            "status": {"filesystemOverhead": {"global": "0.06"}},
        },
    ),
)
"""(plural of the kind, object): an installation with the overhead that the cases count on."""
