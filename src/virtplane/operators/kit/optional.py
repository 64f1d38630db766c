"""Objects of kinds that only some clusters serve: Prometheus' operator's, OpenShift's."""

from __future__ import annotations

from kubecore import errors
from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import ResourceType
from virtplane.operators.kit.product import Product


async def present(client: Client, product: Product, kind: ResourceType) -> list[JsonObject] | None:
    """Those of the product that are there; None where the cluster has no such kind.

    Raises StatusError, ConnectionFailed.
    """
    try:
        found = await client.list(kind, label_selector=product.selector)
    except errors.StatusError as error:
        if not errors.is_not_found(error):
            raise
        return None
    return list(found.get("items") or [])


async def delete(client: Client, kind: ResourceType, document: JsonObject) -> None:
    """Delete one that may be gone already. Raises StatusError, ConnectionFailed."""
    with errors.ignoring(404):
        await client.delete(kind, meta.name(document), meta.namespace(document) or None)


async def delete_all(client: Client, product: Product, kind: ResourceType) -> None:
    """Delete those of the product, wherever they are. Raises StatusError, ConnectionFailed."""
    for document in await present(client, product, kind) or ():
        await delete(client, kind, document)
