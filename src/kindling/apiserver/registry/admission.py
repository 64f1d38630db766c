"""The call site of admission: what the chain is given, and what it is built from.

The server calls ``mutate`` after decoding and defaulting and ``validate`` after the strategy's
validation, right before the write. The chain itself lives in ``kindling.apiserver.admission`` and is
made by its ``build_chain(environment)``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from kubecore.json import JsonObject

from .context import ObjectWriter, RequestContext, UserInfo
from .definition import ResourceDefinition


@dataclass(slots=True)
class AdmissionAttributes:
    """One request as admission sees it."""

    ctx: RequestContext
    definition: ResourceDefinition
    operation: str
    """CREATE, UPDATE, DELETE or CONNECT."""
    object: JsonObject | None = None
    """The new object; plugins change it in place or replace it here. None on DELETE."""
    old_object: JsonObject | None = None
    options: JsonObject | None = None
    """The request's CreateOptions, UpdateOptions, DeleteOptions or PatchOptions with apiVersion and kind.
    None on CONNECT, where `object` has the options."""
    redefault: Callable[[JsonObject], None] = lambda obj: None
    """Applies the kind's defaults again (and prunes unknown fields) after a plugin changed the object."""
    api_version: str = ""
    kind: str = ""
    """Kind of `object`: the resource's own if not given, or that of a subresource's body (Binding)."""
    audit_annotations: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.api_version = self.api_version or self.definition.resource.api_version
        self.kind = self.kind or self.definition.resource.kind


class Admission:
    """A step of admission, or all of them in their order. Sees every request; here nothing is done."""

    async def mutate(self, attributes: AdmissionAttributes) -> None:
        """May change `attributes.object`. Raises StatusError to refuse."""

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Raises StatusError to refuse."""


@dataclass(frozen=True, slots=True)
class ServiceEndpoint:
    """Where a service of the cluster is reached from the API server's process."""

    host: str
    port: int
    server_name: str
    """The name its certificate must carry: ``name.namespace.svc``."""


@dataclass(frozen=True, slots=True)
class AuthorizationQuery:
    """An access check: of a resource if `path` is empty, else of a non-resource path."""

    user: UserInfo
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    field_selector: str = ""
    """Of a list or watch, as text."""


Authorize = Callable[[AuthorizationQuery], tuple[bool, str]]
"""(allowed, reason)."""


@dataclass(frozen=True, slots=True)
class AdmissionEnvironment:
    """The parts of the server that the chain uses."""

    objects: ObjectWriter
    definitions: Callable[[], Sequence[ResourceDefinition]]
    """All resources served now, in every version."""
    equivalents: Callable[[ResourceDefinition], Sequence[ResourceDefinition]]
    """Those of them that serve the same objects as the given one, in whatever version."""
    resolve_service: Callable[[str, str, int], ServiceEndpoint]
    """(namespace, name, port) -> address. Raises StatusError (ServiceUnavailable) when there is none."""
    authorize: Authorize
    on_change: Callable[[str, Callable[[str, JsonObject], None]], None]
    """``on_change(storage_prefix, callback)``: `callback` gets (ADDED|MODIFIED|DELETED, object) for each
    committed change, after the objects of now were reported as ADDED."""
    spawn: Callable[[Awaitable[None], str], None]
    """Run a coroutine as an owned, named task of the server."""
