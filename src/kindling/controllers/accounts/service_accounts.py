"""The account ``default`` in every namespace."""

from __future__ import annotations

from kindling.controllers.environment import Environment
from kubecore.errors import ignoring
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta
from kubecore.resources import NAMESPACES, SERVICE_ACCOUNTS
from kubecore.runtime import DONE, Key, Result

NAME = "serviceaccount-controller"
DEFAULT_ACCOUNT = "default"


def is_populated(namespace: JsonObject) -> bool:
    """Whether controllers put their objects into this namespace: not while it is being deleted."""
    return not meta.is_being_deleted(namespace) and get_str(namespace, "status", "phase") != "Terminating"


class ServiceAccountController:
    """Keyed by namespace."""

    def __init__(self, environment: Environment) -> None:
        self._client = environment.client
        self._namespaces = environment.manager.informer(NAMESPACES)
        self._accounts = environment.manager.informer(SERVICE_ACCOUNTS)
        controller = environment.controller(NAME, self.reconcile)
        controller.watch(self._namespaces)
        controller.watch(
            self._accounts,
            lambda account: [("", meta.namespace(account))],
            lambda event, _, new: event == "DELETED" and meta.name(new) == DEFAULT_ACCOUNT,
        )

    async def reconcile(self, key: Key) -> Result:
        """Create the account where it is missing."""
        namespace = self._namespaces.get(None, key[1])
        if namespace is None or not is_populated(namespace):
            return DONE
        if self._accounts.get(key[1], DEFAULT_ACCOUNT) is not None:
            return DONE
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": DEFAULT_ACCOUNT, "namespace": key[1]},
        }
        # The namespace may have gone, or another have been faster.
        with ignoring(403, 404, 409):
            await self._client.create(SERVICE_ACCOUNTS, account)
        return DONE
