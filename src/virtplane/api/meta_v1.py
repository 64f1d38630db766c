"""Label selectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import field

from virtplane.api.markers import ATOMIC, ApiStruct


class LabelSelectorRequirement(ApiStruct, kw_only=True):
    """One comparison of a label with values."""

    key: str
    operator: str
    values: Annotated[list[str], ATOMIC] = field(default_factory=list)


class LabelSelector(ApiStruct, kw_only=True):
    """Selects objects by their labels; empty selects all, absent none."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"x-kubernetes-map-type": "atomic"}
    match_expressions: Annotated[list[LabelSelectorRequirement], ATOMIC] = field(default_factory=list)
    match_labels: dict[str, str] = field(default_factory=dict)
