"""ServiceAccount: every pod has an account, and its token unless it says otherwise."""

from __future__ import annotations

import asyncio
import secrets

from kindling.apiserver.registry.admission import AdmissionAttributes
from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import PODS, SERVICE_ACCOUNTS

from .base import ReadingPlugin, concerns, refuse

_DEFAULT = "default"
_DEFAULT_ATTEMPTS, _DEFAULT_RETRY_SECONDS = 10, 0.2
"""As Kubernetes does: manifests that begin with their namespace are applied at once."""
_MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_VOLUME_PREFIX = "kube-api-access-"
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_TOKEN_SECONDS = 3607
"""An hour, and a little more, so that the kubelet can tell its own volumes from those of users."""
_MIRROR = "kubernetes.io/config.mirror"
_ENFORCE_MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"


class ServiceAccounts(ReadingPlugin):
    """See the module."""

    async def mutate(self, attributes: AdmissionAttributes) -> None:
        """Name the account, mount its token, take over its pull secrets."""
        pod = attributes.object
        if pod is None or not concerns(attributes, PODS, "CREATE") or _is_mirror(pod):
            return
        spec = pod.setdefault("spec", {})
        spec["serviceAccountName"] = spec.get("serviceAccountName") or _DEFAULT
        spec["serviceAccount"] = spec["serviceAccountName"]
        if spec["serviceAccountName"] == _DEFAULT:
            await self._wait_for_default(attributes.ctx.namespace)
        account = self._account(attributes, pod)
        if _wants_token(spec, account):
            _mount_token(spec)
        pull_secrets = get_list(account, "imagePullSecrets")
        if pull_secrets and not spec.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [{"name": each.get("name")} for each in pull_secrets]

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """The account exists; mirror pods have none."""
        pod = attributes.object
        if pod is None or not concerns(attributes, PODS, "CREATE"):
            return
        spec = get_object(pod, "spec")
        if _is_mirror(pod):
            if spec.get("serviceAccountName"):
                raise refuse(attributes, "a mirror pod may not reference service accounts")
            return
        account = self._account(attributes, pod)
        if meta.annotations(account).get(_ENFORCE_MOUNTABLE) == "true":
            _check_mountable(attributes, spec, account)

    async def _wait_for_default(self, namespace: str) -> None:
        """Give the controller the time to make the account of a namespace that has just been made."""
        for _ in range(_DEFAULT_ATTEMPTS - 1):
            if self._objects.get(SERVICE_ACCOUNTS, namespace, _DEFAULT) is not None:
                return
            await asyncio.sleep(_DEFAULT_RETRY_SECONDS)

    def _account(self, attributes: AdmissionAttributes, pod: JsonObject) -> JsonObject:
        namespace, name = attributes.ctx.namespace, get_str(pod, "spec", "serviceAccountName")
        account = self._objects.get(SERVICE_ACCOUNTS, namespace, name)
        if account is None:
            raise refuse(
                attributes,
                f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found',
            )
        return account


def _is_mirror(pod: JsonObject) -> bool:
    return _MIRROR in meta.annotations(pod)


def _wants_token(spec: JsonObject, account: JsonObject) -> bool:
    for chooser in (spec, account):
        if isinstance(chooser.get("automountServiceAccountToken"), bool):
            return bool(chooser["automountServiceAccountToken"])
    return True


def _mount_token(spec: JsonObject) -> None:
    """A projected volume with token, CA and namespace, in each container that has nothing at that path."""
    volumes = spec.get("volumes") or []
    name = next(
        (str(volume.get("name")) for volume in volumes if str(volume.get("name")).startswith(_VOLUME_PREFIX)),
        "",
    )
    is_new = not name
    name = name or _VOLUME_PREFIX + "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(5))
    mount = {"name": name, "readOnly": True, "mountPath": _MOUNT_PATH}
    mounted = False
    for group in ("initContainers", "containers"):
        for container in spec.get(group) or ():
            mounts = container.get("volumeMounts") or []
            if any(each.get("mountPath") == _MOUNT_PATH for each in mounts):
                continue
            container["volumeMounts"] = [*mounts, dict(mount)]
            mounted = True
    if mounted and is_new:
        spec["volumes"] = [*volumes, {"name": name, "projected": deep_copy(_TOKEN_PROJECTION)}]


_TOKEN_PROJECTION: JsonObject = {
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [
                    {
                        "path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    }
                ]
            }
        },
    ],
    "defaultMode": 420,
}


def _check_mountable(attributes: AdmissionAttributes, spec: JsonObject, account: JsonObject) -> None:
    """An account may restrict its pods to the secrets that it lists."""
    allowed = {str(each.get("name")) for each in get_list(account, "secrets")}
    owner = meta.name(account)
    for volume in spec.get("volumes") or ():
        secret = get_str(volume, "secret", "secretName")
        if secret and secret not in allowed:
            message = (
                f'volume with secret.secretName="{secret}" is not allowed because service account {owner} '
                "does not reference that secret"
            )
            raise refuse(attributes, message)
    for secret in spec.get("imagePullSecrets") or ():
        pulls = {str(each.get("name")) for each in get_list(account, "imagePullSecrets")}
        if secret.get("name") not in pulls:
            message = (
                f'imagePullSecrets[].name="{secret.get("name")}" is not allowed because service account '
                f"{owner} does not reference that imagePullSecret"
            )
            raise refuse(attributes, message)
