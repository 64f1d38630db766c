"""In which order an installation goes."""

from __future__ import annotations

from tests.support.bakery import BAKERY

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.resources import ResourceType
from kubecore.testing import MemoryApi
from virtplane.operators.kit.apply import Applier
from virtplane.operators.kit.installation import Installation
from virtplane.operators.kit.removal import Remover

LOAVES = ResourceType("bakery.example", "v1", "loaves", "Loaf")
PRIORITY: JsonObject = {"kind": "PriorityClass", "metadata": {"name": "bread-first"}}
SERVICE: JsonObject = {"kind": "Service", "metadata": {"name": "oven", "namespace": "bread"}}
OVEN: JsonObject = {"kind": "Deployment", "metadata": {"name": "oven", "namespace": "bread"}}
INSTALLED = Installation((PRIORITY, SERVICE), (OVEN,), ())
_SECRET: JsonObject = {
    "metadata": {
        "name": "oven-certs",
        "namespace": "bread",
        "labels": {"app.kubernetes.io/managed-by": "bakery-operator"},
    }
}


def _server() -> MemoryApi:
    api = MemoryApi([LOAVES])
    api.put(resources.PRIORITY_CLASSES, PRIORITY)
    api.put(resources.SERVICES, SERVICE)
    api.put(resources.DEPLOYMENTS, OVEN)
    api.put(resources.SECRETS, _SECRET)
    return api


async def _remove(api: MemoryApi) -> str:
    async with api.client() as client:
        kept = (resources.PRIORITY_CLASSES,)
        return await Remover(client, Applier(client, BAKERY), (LOAVES,), kept).remove(INSTALLED, "bread")


async def test_components_stay_until_the_users_objects_are_gone() -> None:
    api = _server()
    finalizers = {"name": "rye", "namespace": "bread", "finalizers": ["bakery.example/bake"]}
    api.put(LOAVES, {"metadata": finalizers})
    assert await _remove(api) == "objects of users are being deleted: loaves bread/rye"
    loaf = api.get(LOAVES, "rye", "bread") or {}
    assert "deletionTimestamp" in loaf["metadata"]
    assert api.get(resources.DEPLOYMENTS, "oven", "bread") is not None


async def test_everything_goes_but_what_the_operators_own_pods_need() -> None:
    api = _server()
    assert await _remove(api) == ""
    assert api.get(resources.DEPLOYMENTS, "oven", "bread") is None
    assert api.get(resources.SERVICES, "oven", "bread") is None
    assert api.get(resources.SECRETS, "oven-certs", "bread") is None
    assert api.get(resources.PRIORITY_CLASSES, "bread-first") is not None
