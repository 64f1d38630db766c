"""Building blocks of the API types: the base struct, scalar types, and schema markers.

Structs are typed *views*. The raw JSON document stays the truth; a struct is decoded from it to read
with types (``decode(VirtualMachine, document)``) and never written back, so fields that a struct does not
know survive.

The marks (`msgspec.Meta(extra_json_schema=...)`) carry what a definition's structural schema says
beyond the type: formats, bounds, list types, defaults, CEL rules. `virtplane.api.schema` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, dataclass_transform

import msgspec
from msgspec import Meta

REQUEST_ENUM = "x-virtplane-request-enum"
"""Values that virt-api's webhooks insist on although the served definition leaves the string open."""

REQUEST_FORMAT = "x-virtplane-request-format"
"""The number that KubeVirt's own types hold, where the served definition names another format or none."""

UNSIGNED = "x-virtplane-unsigned"
"""How many bits a number without sign has."""

REQUEST_METADATA = "x-virtplane-request-metadata"
"""KubeVirt's own types know which members metadata has, although the served definition does not."""

PRESENCE = "x-virtplane-presence"
"""When KubeVirt's own types write a member down: see `EMPTY_IS_SET`, `ZERO_IS_UNSET` and `ALWAYS_WRITTEN`."""

REQUIRED_MEMBER = "x-virtplane-required"
"""The definition requires the member; readers take an empty one where it is missing."""

_NUMBER = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
QUANTITY_PATTERN = rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$"
"""How Kubernetes quantities are written."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class ApiStruct(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """Base of every API type: wire names in camel case, absent fields at their defaults.

    Instances cannot be changed, because caches share them. A member that readers go through (``cpu`` of a
    domain) is empty where it is absent; where being there means something (``tpm``), it is None.
    """

    schema_marks: ClassVar[Mapping[str, Any]] = {}
    """What the schema says of every use of the type (for example that null is accepted)."""
    schema_has_members: ClassVar[bool] = True
    """False where the schema says that there is an object, and nothing of what is in it."""


def mark(**schema: Any) -> Meta:
    """Schema keywords for one field; underscores in names stand for dashes."""
    return Meta(
        extra_json_schema={
            key.replace("_", "-") if key.startswith("x_") else key: value for key, value in schema.items()
        }
    )


def describe(text: str) -> Meta:
    """The field's description (``kubectl explain``). It hides that of a struct which the field holds, but not
    that of structs in a list.
    """
    return Meta(description=text)


def list_map(*keys: str) -> Meta:
    """A list whose items are identified by these fields (list type ``map``)."""
    return mark(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=list(keys))


def one_of(*values: str) -> Meta:
    """The definition accepts these values only."""
    return mark(enum=list(values))


def requested_one_of(*values: str) -> Meta:
    """The webhooks accept these values only; the definition accepts any string."""
    return Meta(extra_json_schema={REQUEST_ENUM: sorted(values)})


def rules(*validations: tuple[str, str]) -> Meta:
    """CEL rules, each with the message of its violation."""
    return mark(
        x_kubernetes_validations=[{"rule": rule, "message": message} for rule, message in validations]
    )


ATOMIC = mark(x_kubernetes_list_type="atomic")
"""A list replaced as a whole by apply."""
SET = mark(x_kubernetes_list_type="set")
"""A list without duplicates, merged by apply."""
ATOMIC_MAP = mark(x_kubernetes_map_type="atomic")
"""An object replaced as a whole by apply."""
NULLABLE = mark(nullable=True)
"""Null is accepted and kept."""
REQUIRED = Meta(extra_json_schema={REQUIRED_MEMBER: True})
"""Required by the definition, though the struct has a default."""
EMPTY_IS_SET = Meta(extra_json_schema={PRESENCE: "kept"})
"""An empty text is kept (elsewhere it is the same as none)."""
NULL_IS_WRITTEN = Meta(extra_json_schema={PRESENCE: "null"})
"""The member is written as null where it was not given, which the definition may refuse."""
ZERO_IS_UNSET = Meta(extra_json_schema={PRESENCE: "dropped"})
"""0 and false are the same as none (elsewhere they are kept)."""
ALWAYS_WRITTEN = Meta(extra_json_schema={PRESENCE: "written"})
"""The member is written with its zero value where it was not given."""
PRESERVE = mark(x_kubernetes_preserve_unknown_fields=True)
"""Unknown fields are kept."""

Int32 = Annotated[int, mark(format="int32")]
Int64 = Annotated[int, mark(format="int64")]
UInt32 = Annotated[int, mark(format="int64", minimum=0, maximum=4294967295)]
Int = Annotated[int, Meta(extra_json_schema={REQUEST_FORMAT: "int32"})]
UInt = Annotated[int, Meta(extra_json_schema={REQUEST_FORMAT: "int32", UNSIGNED: 64})]
UInt32Count = Annotated[
    int, mark(format="int32"), Meta(extra_json_schema={REQUEST_FORMAT: "int64", UNSIGNED: 32})
]
UInt8 = Annotated[int, Meta(extra_json_schema={REQUEST_FORMAT: "byte", UNSIGNED: 8})]
Float = Annotated[float, mark(format="float")]
Quantity = Annotated[
    str | int,
    mark(
        anyOf=[{"type": "integer"}, {"type": "string"}],
        pattern=QUANTITY_PATTERN,
        x_kubernetes_int_or_string=True,
    ),
]
"""An amount with an optional suffix (`128Mi`, `500m`)."""
IntOrString = Annotated[
    str | int, mark(anyOf=[{"type": "integer"}, {"type": "string"}], x_kubernetes_int_or_string=True)
]
"""A number, or a string such as a percentage or the name of a port."""
Time = Annotated[str, mark(format="date-time")]
"""A point in time as RFC 3339 writes it."""
Duration = str
"""A length of time as Go writes it (`1h30m`)."""
TemplateMetadata = Annotated[
    Mapping[str, Any] | None,
    mark(type="object", nullable=True),
    PRESERVE,
    Meta(extra_json_schema={REQUEST_METADATA: True}),
]
"""Metadata of objects to create."""
KeptMetadata = Annotated[Mapping[str, Any], mark(type="object"), PRESERVE]
"""Metadata of an object kept inside another one."""
