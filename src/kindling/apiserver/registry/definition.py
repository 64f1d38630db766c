"""The contract of a served resource: what the generic operations must know about a kind.

A ``ResourceDefinition`` describes one resource in one served version. Suppliers (built-in kinds, custom
resource definitions) give each a ``Schema`` and a ``Strategy``; the generic operations do the rest:
metadata, generation, managed fields, preconditions, finalizers, paging, watching, tables.

Order of a create: decode -> unknown fields -> ``default`` -> mutating admission -> ``default`` ->
``prepare_for_create`` -> ``validate`` (+ metadata validation, done generically) -> ``canonicalize`` ->
``warnings`` -> validating admission -> storage. An update goes the same way with the update hooks.
Hooks change the document in place; they never do I/O beyond ``ctx.objects`` and ``ctx.addresses``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kubecore.json import JsonObject
from kubecore.objects import names
from kubecore.objects.fields import FieldError
from kubecore.resources import ResourceType
from kubecore.schema.model import Schema

from .context import RequestContext

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
"""What a stored resource offers by default."""


class Strategy:
    """The behaviour of one kind; here is what most kinds share, and a kind overrides what differs."""

    allow_create_on_update: bool = False
    """PUT of an absent object creates it (leases, roles, ... but not pods)."""
    allow_unconditional_update: bool = True
    """PUT without resourceVersion overwrites."""
    default_propagation: str = "Background"
    """Propagation of a delete that names none: Background, or Orphan (jobs, replication controllers)."""
    orphaning_warning: str = ""
    """The warning about a delete that names no propagation policy; empty for none."""
    returns_deleted_object: bool = False
    """A delete is answered with the object instead of a Status (pods, services, claims, ...)."""
    has_status: bool = True
    """Whether ``status`` is written only through the status subresource."""
    reset_fields: tuple[str, ...] = ()
    """Top-level fields besides status that updates never change; managedFields omits them."""
    tracks_generation: bool = True
    """Whether metadata.generation is kept: 1 on create, +1 for a change outside metadata and status."""
    metadata_checks: tuple[int, int] = (1, 0)
    """How often the kind's rules for changes judge the metadata: as a change, and like that of a new object.

    It shows in how often an error is listed; the rules that all kinds share list it once more.
    """

    standard_finalizers: bool = True
    """Whether finalizers must be standard ones or qualified. Of extensions' kinds, and of some others, only
    the form is judged."""

    def default(self, obj: JsonObject) -> None:
        """Set defaults of absent fields, in place. Also runs when stored objects are read back."""

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """Drop what users may not set (the status), set what the server owns (the generation)."""
        if self.has_status:
            obj.pop("status", None)
        if self.tracks_generation:
            obj["metadata"]["generation"] = 1

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Carry over from `old` what this endpoint may not change. Generation is handled generically."""
        if self.has_status:
            if "status" in old:
                new["status"] = old["status"]
            else:
                new.pop("status", None)

    def validate(self, ctx: RequestContext, obj: JsonObject) -> list[FieldError]:
        """Semantic errors of a new object (ObjectMeta is validated generically)."""
        return []

    def validate_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """Semantic errors of a change, immutable fields among them (ObjectMeta is validated generically)."""
        return self.validate(ctx, new)

    def validate_name(self, name: str, *, prefix: bool) -> list[str]:
        """Kubernetes' messages about metadata.name (or generateName when `prefix`); empty when fine."""
        return names.is_dns1123_subdomain(name.rstrip("-") if prefix else name)

    def canonicalize(self, obj: JsonObject) -> None:
        """Normalize after validation."""

    def warnings(self, ctx: RequestContext, obj: JsonObject, old: JsonObject | None) -> list[str]:
        """The texts of ``Warning: 299`` headers; `old` is None on create."""
        return []

    def selectable_fields(self, obj: JsonObject) -> Mapping[str, str]:
        """Values of the field labels beyond metadata.name and metadata.namespace (missing fields as "")."""
        return {}

    def generation_changed(self, new: JsonObject, old: JsonObject) -> bool:
        """Whether the change counts in metadata.generation: any outside metadata and status."""
        if not self.tracks_generation:
            return False
        ignored = {"metadata", "status"} if self.has_status else {"metadata"}
        keys = (new.keys() | old.keys()) - ignored - {"apiVersion", "kind"}
        return any(new.get(key) != old.get(key) for key in keys)

    def grace_period(self, ctx: RequestContext, obj: JsonObject, requested: int | None) -> int | None:
        """Seconds of graceful deletion; None when the kind is deleted at once. Pods and their like only.

        `requested` is deleteOptions.gracePeriodSeconds.
        """
        return None

    def before_delete(self, ctx: RequestContext, obj: JsonObject) -> JsonObject | None:
        """Veto a deletion by raising StatusError, or return a changed object to store instead of deleting
        (a namespace turns Terminating). None: delete as usual."""
        return None

    def after_write(self, ctx: RequestContext, obj: JsonObject, old: JsonObject | None) -> None:
        """Called after a durable write; `old` is None on create."""

    def after_delete(self, ctx: RequestContext, obj: JsonObject) -> None:
        """The object is gone (give back addresses)."""

    def blank(self) -> JsonObject:
        """An object without any field set: its containers are always present, and have no field manager."""
        return {}


class StatusStrategy(Strategy):
    """Writes through ``/status``: only status (and metadata that Kubernetes lets through) changes.

    `base` is the main strategy, whose defaults and field labels hold here too. Override
    ``validate_update`` for the kind's status rules.
    """

    tracks_generation = False

    def __init__(self, base: Strategy) -> None:
        self.base = base
        self.allow_unconditional_update = base.allow_unconditional_update

    def default(self, obj: JsonObject) -> None:
        """As the main resource."""
        self.base.default(obj)

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Keep everything except metadata and status."""
        for key in list(new):
            if key not in ("apiVersion", "kind", "metadata", "status"):
                del new[key]
        for key, value in old.items():
            if key not in ("apiVersion", "kind", "metadata", "status"):
                new[key] = value

    def validate_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """No rules."""
        return []

    def selectable_fields(self, obj: JsonObject) -> Mapping[str, str]:
        """As the main resource."""
        return self.base.selectable_fields(obj)

    def blank(self) -> JsonObject:
        """As the main resource."""
        return self.base.blank()


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of a server-side table. `priority` 0 columns show without ``-o wide``."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0

    def to_json(self) -> JsonObject:
        """A TableColumnDefinition."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


class TableConverter(Protocol):
    """Turns objects into rows of a table."""

    @property
    def columns(self) -> Sequence[TableColumn]:
        """The heads of the columns."""

    def cells(self, obj: JsonObject) -> list[Any]:
        """One value per column: strings, numbers, booleans, or None."""

    def conditions(self, obj: JsonObject) -> list[JsonObject]:
        """TableRowConditions (a completed pod); mostly none."""


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The fields of a kind that autoscaling/v1 Scale shows; dotted paths such as ``spec.replicas``."""

    spec_replicas: str = "spec.replicas"
    status_replicas: str = "status.replicas"
    selector: str = ""
    """Path of a label selector object, a map of labels, or its string form. Empty: none."""
    validate: Callable[[RequestContext, JsonObject], list[FieldError]] | None = None


Action = Callable[[RequestContext, JsonObject], Awaitable[JsonObject]]
"""A create-only subresource (binding, eviction, token): gets the decoded body, returns the answer's body.

It runs after mutating and validating admission. An answer of kind Status is sent with its own code,
anything else with 201."""


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource of a resource. Exactly one of `strategy`, `scale`, `action`, `connect` is set."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    """Group of `kind` when it differs from the resource's; then `version` must be set, too."""
    version: str = ""
    strategy: Strategy | None = None
    """get, update and patch of the object itself under other rules (status, approval, resize)."""
    scale: ScalePaths | None = None
    action: Action | None = None
    connect: bool = False
    """log, exec, attach, portforward, proxy: streamed by the server's proxying."""
    schema: Schema | None = None
    """Schema of `kind` where it is not the resource's own (body of an action)."""
    older_versions: tuple[str, ...] = ()
    """Versions of the body's group that an action takes as well; they must differ in name only."""


def status_subresource(kind: str, strategy: Strategy) -> Subresource:
    """The usual ``/status``."""
    return Subresource("status", kind, ("get", "patch", "update"), strategy=strategy)


def scale_subresource(paths: ScalePaths) -> Subresource:
    """The usual ``/scale``."""
    return Subresource(
        "scale", "Scale", ("get", "patch", "update"), group="autoscaling", version="v1", scale=paths
    )


class Converter(Protocol):
    """Conversion between the served versions of a resource."""

    async def convert(self, objects: Sequence[JsonObject], api_version: str) -> list[JsonObject]:
        """The objects in `api_version`, in order. May change its arguments. Raises StatusError."""


Virtual = Callable[[RequestContext, JsonObject], Awaitable[JsonObject]]
"""Creates of a resource that is never stored (reviews): body in, answer out (201)."""


@dataclass(slots=True, eq=False)
class ResourceDefinition:
    """One resource in one served version."""

    resource: ResourceType
    schema: Schema | None
    """Structural schema of the whole object; None keeps everything (no pruning)."""
    strategy: Strategy
    singular: str = ""
    """Defaults to the lower-case kind."""
    list_kind: str = ""
    """Defaults to the kind + ``List``."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    table: TableConverter | None = None
    """None: the default columns Name and Age (Created At)."""
    field_labels: tuple[str, ...] = ()
    """Selectable field labels beyond metadata.name and metadata.namespace."""
    field_label_error: str = ""
    """Message about an unknown field label, with ``{label}``. Empty: the usual one."""
    storage_version: str = ""
    """apiVersion in which objects are stored; defaults to the resource's own."""
    storage_prefix: str = ""
    """Key prefix in the store, shared by all versions (and by events of both groups). Defaults to
    ``group/plural`` (``core/plural`` for the core group)."""
    refresh: Callable[[JsonObject], None] | None = None
    """Brings objects which were stored before `fresh_since` to the schema of today, when they are read."""
    fresh_since: int = 0
    """The revision since when objects are stored by the schema of today."""
    versions: Mapping[str, Schema] = field(default_factory=dict)
    """Schemas of a custom resource by apiVersion: others may own fields in any. Empty for built-in kinds."""
    converter: Converter | None = None
    """Needed when an object's apiVersion may differ from the resource's."""
    virtual: Virtual | None = None
    """Set for resources that are only created and never stored."""
    custom: bool = False
    """From a custom resource definition: other decoding errors, no strategic merge patches."""
    recorded: bool = True
    """False where nobody ever stores objects: lists then have no resourceVersion."""
    deprecation_warning: str = ""
    """Sent as a Warning with every answer of a deprecated version."""
    openapi: Mapping[str, Any] = field(default_factory=dict)
    """Published schemas by definition name that this resource adds to the OpenAPI documents."""
    openapi_name: str = ""
    """Name of the object's schema in `openapi` (``io.k8s.api.core.v1.Pod``)."""

    def __post_init__(self) -> None:
        kind = self.resource.kind
        self.singular = self.singular or kind.lower()
        self.list_kind = self.list_kind or f"{kind}List"
        self.storage_version = self.storage_version or self.resource.api_version
        self.storage_prefix = self.storage_prefix or f"{self.resource.group or 'core'}/{self.resource.plural}"

    def key(self, namespace: str, name: str) -> str:
        """The object's key in the store."""
        return (
            f"{self.storage_prefix}/{namespace}/{name}"
            if self.resource.namespaced
            else (f"{self.storage_prefix}/{name}")
        )
