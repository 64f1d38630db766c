"""What all operations on stored objects share: the store, the catalog, admission, and versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubecore.json import JsonObject, deep_copy
from kubecore.large_requests import LargeRequestPool

from ..storage.store import Item, Store
from . import encoding
from .addresses import AddressPool
from .admission import Admission
from .catalog import Catalog
from .context import RequestContext
from .definition import ResourceDefinition
from .room import NAMESPACE_BYTES, Room

_OPEN = Admission()


@dataclass(slots=True)
class Written:
    """The outcome of a write: a stored `item`, or the `document` that a dry run would have stored."""

    definition: ResourceDefinition
    item: Item | None
    document: JsonObject
    created: bool = False


class Registry:
    """The state that operations work on. `chain` is set once the admission chain is built."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        addresses: AddressPool,
        namespace_bytes: int = NAMESPACE_BYTES,
    ) -> None:
        self.store = store
        self.room = Room(store, namespace_bytes)
        self.catalog = catalog
        self.addresses = addresses
        self.chain: Admission = Admission()
        self.large_requests = LargeRequestPool()

    def admission(self, ctx: RequestContext) -> Admission:
        """The chain for a request; writes of the server itself pass unasked."""
        return _OPEN if ctx.internal else self.chain

    async def documents(self, definition: ResourceDefinition, items: Sequence[Item]) -> list[JsonObject]:
        """Decoded copies in the definition's version."""
        found = [item.document() for item in items]
        if definition.refresh is not None:
            for item, document in zip(items, found, strict=True):
                if item.revision < definition.fresh_since:
                    definition.refresh(document)
        return await to_version(definition, found)

    async def document(
        self, definition: ResourceDefinition, item: Item, ctx: RequestContext | None = None
    ) -> JsonObject:
        """A decoded copy in the definition's version; `ctx` decodes large objects in a thread."""
        if ctx is not None and definition.converter is None and definition.refresh is None:
            return await ctx.run(item.document)
        return (await self.documents(definition, [item]))[0]

    async def values(self, definition: ResourceDefinition, items: Sequence[Item]) -> list[bytes]:
        """Encodings in the definition's version, each with the definition's header."""
        if definition.converter is None and definition.refresh is None:
            return [item.value for item in items]
        head, since = encoding.header(definition), definition.fresh_since

        def is_ready(item: Item) -> bool:
            return item.revision >= since and item.value.startswith(head)

        if all(map(is_ready, items)):
            return [item.value for item in items]
        others = [item for item in items if not is_ready(item)]
        converted = iter(await self.documents(definition, others))
        return [item.value if is_ready(item) else encoding.encode(next(converted)) for item in items]


async def to_version(definition: ResourceDefinition, documents: list[JsonObject]) -> list[JsonObject]:
    """Documents of a bucket in the definition's version (converted only where they differ)."""
    wanted = definition.resource.api_version
    if definition.converter is None or all(document.get("apiVersion") == wanted for document in documents):
        return documents
    # Conversion never sees the resourceVersion: it belongs to storage.
    revisions = [document["metadata"].pop("resourceVersion", None) for document in documents]
    converted = await definition.converter.convert(documents, wanted)
    for document, revision in zip(converted, revisions, strict=True):
        if revision is not None:
            document["metadata"]["resourceVersion"] = revision
    return converted


async def to_storage(definition: ResourceDefinition, document: JsonObject) -> JsonObject:
    """A document of the definition's version as it is stored."""
    if definition.converter is None or document.get("apiVersion") == definition.storage_version:
        return document
    copied = deep_copy(document)
    copied["metadata"].pop("resourceVersion", None)  # known only once it is stored
    return (await definition.converter.convert([copied], definition.storage_version))[0]


def object_path(definition: ResourceDefinition, namespace: str, name: str) -> str:
    """The object's path in its bucket."""
    return f"{namespace}/{name}" if definition.resource.namespaced else name
