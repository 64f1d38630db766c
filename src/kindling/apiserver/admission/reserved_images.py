"""Reserved images: only the service accounts that the administrator names may use them.

The host image shows a container files of the machine. A pod may use a reserved image when a named account
asks for it, or when the pod itself runs as one: pods of a Deployment or DaemonSet are created by controllers.
Nobody else's account can be put into a pod of another namespace, so the second needs the right to create
pods beside the account, which is the right to use its token as well.
"""

from __future__ import annotations

from collections.abc import Collection

from kindling.apiserver.registry.admission import Admission, AdmissionAttributes
from kubecore.json import JsonObject, get_list, get_str
from kubecore.resources import PODS

from .base import refuse

_KINDS = ("initContainers", "containers", "ephemeralContainers")


class ReservedImages(Admission):
    """`accounts` are ``namespace/name``."""

    def __init__(self, repositories: Collection[str], accounts: Collection[str]) -> None:
        self._repositories = frozenset(repositories)
        self._accounts = frozenset(accounts)

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Refuse a pod that brings a reserved image in, also into a running one."""
        asked, pod = attributes.definition.resource, attributes.object
        if pod is None or asked.plural != PODS.plural or asked.group != PODS.group:
            return
        if not self._repositories or attributes.operation not in ("CREATE", "UPDATE"):
            return
        used = self._used(pod) - self._used(attributes.old_object or {})
        if not used or self._may(attributes, pod):
            return
        image = sorted(used)[0][1]
        raise refuse(attributes, f'image "{image}" is reserved for service accounts of the cluster itself')

    def _may(self, attributes: AdmissionAttributes, pod: JsonObject) -> bool:
        namespace = attributes.ctx.namespace
        own = f"{namespace}/{get_str(pod, 'spec', 'serviceAccountName')}"
        user = attributes.ctx.user.name
        return own in self._accounts or user in {
            f"system:serviceaccount:{account.replace('/', ':')}" for account in self._accounts
        }

    def _used(self, pod: JsonObject) -> set[tuple[str, str]]:
        """(place in the pod, reference) of every reserved image."""
        found = {
            (f"{kind}/{get_str(container, 'name')}", get_str(container, "image"))
            for kind in _KINDS
            for container in get_list(pod, "spec", kind)
        }
        found |= {
            (f"volumes/{get_str(volume, 'name')}", get_str(volume, "image", "reference"))
            for volume in get_list(pod, "spec", "volumes")
        }
        return {(place, image) for place, image in found if repository(image) in self._repositories}


def repository(reference: str) -> str:
    """An image reference without tag and digest."""
    name = reference.strip().partition("@")[0]
    path, colon, tag = name.rpartition(":")
    return path if colon and "/" not in tag else name
