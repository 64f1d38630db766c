"""The config map ``kube-root-ca.crt`` in every namespace: the authority that pods trust the API server by."""

from __future__ import annotations

from kindling.controllers.accounts.service_accounts import is_populated
from kindling.controllers.environment import Environment
from kubecore.errors import ignoring
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from kubecore.resources import CONFIG_MAPS, NAMESPACES
from kubecore.runtime import DONE, Key, Result

NAME = "root-ca-certificate-publisher-controller"
CONFIG_MAP = "kube-root-ca.crt"
DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such "
    "as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions "
    "of Kubernetes clusters."
)


def wanted(namespace: str, root_ca: str) -> JsonObject:
    """The config map as it should be."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": CONFIG_MAP,
            "namespace": namespace,
            "annotations": {"kubernetes.io/description": DESCRIPTION},
        },
        "data": {"ca.crt": root_ca},
    }


class RootCaPublisher:
    """Keyed by namespace."""

    def __init__(self, environment: Environment) -> None:
        self._client = environment.client
        self._root_ca = environment.root_ca
        self._namespaces = environment.manager.informer(NAMESPACES)
        self._config_maps = environment.manager.informer(
            CONFIG_MAPS, field_selector=f"metadata.name={CONFIG_MAP}"
        )
        controller = environment.controller(NAME, self.reconcile)
        controller.watch(self._namespaces)
        controller.watch(self._config_maps, lambda found: [("", meta.namespace(found))])

    async def reconcile(self, key: Key) -> Result:
        """Create the config map, or put its contents right."""
        namespace = self._namespaces.get(None, key[1])
        if namespace is None or not is_populated(namespace):
            return DONE
        found = self._config_maps.get(key[1], CONFIG_MAP)
        target = wanted(key[1], self._root_ca)
        with ignoring(403, 404, 409):
            if found is None:
                await self._client.create(CONFIG_MAPS, target)
            elif found.get("data") != target["data"] or not meta.annotations(found):
                updated = deep_copy(found)
                updated["data"] = target["data"]
                updated["metadata"]["annotations"] = {
                    **meta.annotations(found),
                    **target["metadata"]["annotations"],
                }
                await self._client.update(CONFIG_MAPS, updated)
        return DONE
