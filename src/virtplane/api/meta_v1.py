"""Object metadata and label selectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import field

from virtplane.api.markers import ATOMIC, ApiStruct, Time, describe


class LabelSelectorRequirement(ApiStruct, kw_only=True):
    """One comparison of a label with values."""

    key: Annotated[str, describe("Name of the label.")]
    operator: Annotated[str, describe("In, NotIn, Exists or DoesNotExist.")]
    values: Annotated[tuple[str, ...], ATOMIC, describe("Values; none for Exists and DoesNotExist.")] = ()


class LabelSelector(ApiStruct, kw_only=True):
    """Selects objects by their labels; empty selects all, absent none."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"x-kubernetes-map-type": "atomic"}
    match_expressions: Annotated[
        tuple[LabelSelectorRequirement, ...], ATOMIC, describe("Comparisons, all required.")
    ] = ()
    match_labels: Annotated[Mapping[str, str], describe("Labels with values, all required.")] = field(
        default_factory=dict
    )


class OwnerReference(ApiStruct, kw_only=True):
    """An object that another one belongs to."""

    api_version: str = ""
    block_owner_deletion: bool | None = None
    controller: bool | None = None
    kind: str = ""
    name: str = ""
    uid: str = ""


class ObjectMeta(ApiStruct, kw_only=True):
    """What every object has, as far as it is read; what it may hold is the API server's business.

    ``managedFields`` are left out: they are often the larger part of an object, and nobody reads them.
    """

    schema_has_members: ClassVar[bool] = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    finalizers: tuple[str, ...] = ()
    generate_name: str = ""
    generation: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    namespace: str = ""
    owner_references: tuple[OwnerReference, ...] = ()
    resource_version: str = ""
    uid: str = ""

    @property
    def is_being_deleted(self) -> bool:
        """Whether the object waits for its grace period or finalizers."""
        return self.deletion_timestamp is not None

    @property
    def created(self) -> str:
        """When the object was created, by which objects are sorted; empty where that is not known."""
        return self.creation_timestamp or ""

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages the object, or None."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    def is_controlled_by(self, owner: ObjectMeta) -> bool:
        """Whether `owner` manages the object (by uid)."""
        return self.controller is not None and self.controller.uid == owner.uid
