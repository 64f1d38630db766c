"""Making a machine's account and its tokens; refusing those of a machine that is gone."""

from __future__ import annotations

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import ResourceType
from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCES
from virtplane.api.vnc_access import access_name
from virtplane.compute.apiserver.vnctokens.access import Step, belongs_to, is_issued, step, token_of, wanted
from virtplane.serving.frontproxy import User

_ATTEMPTS = 5
"""Others write the same objects: those who ask at the same time, and the garbage collector."""


class NotOurs(Exception):
    """An object that somebody else made has the name of a machine's account, role or binding."""


class Issuer:
    """Issues tokens, as the account that may."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def prepare(self, vm: JsonObject) -> str:
        """Bring about what the machine's tokens need, and give the account's UID.

        Raises NotOurs, StatusError, ConnectionFailed.
        """
        ensured = [await self._ensure(resource, document) for resource, document in wanted(vm)]
        return meta.uid(ensured[0])

    async def token(self, vm: JsonObject, account_uid: str, seconds: int) -> JsonObject:
        """A token of the machine's account. Raises StatusError, ConnectionFailed.

        The account is read afterwards: it may have become another one, whose rights are not known.
        """
        namespace, name = meta.namespace(vm), access_name(meta.name(vm))
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        account = resources.SERVICE_ACCOUNTS
        answer = await self._client.create(account, request, namespace, name=name, subresource="token")
        if meta.uid(await self._client.get(account, name, namespace)) != account_uid:
            raise errors.conflict(account.group_resource, name, "it was replaced meanwhile; please try again")
        return token_of(answer)

    async def _ensure(self, resource: ResourceType, desired: JsonObject) -> JsonObject:
        namespace, name = meta.namespace(desired), meta.name(desired)
        for _ in range(_ATTEMPTS):
            live = await self._live(resource, name, namespace)
            todo = step(live, desired)
            if todo is Step.REFUSE:
                raise NotOurs(f'{resource.plural} "{name}" was not made for tokens; rename or remove it')
            if live is not None and todo is Step.KEEP:
                return live
            with errors.ignoring(404, 409):
                if live is not None:
                    await self._client.delete(resource, name, namespace, uid=meta.uid(live))
                return await self._client.create(resource, desired, namespace)
        raise errors.conflict(resource.group_resource, name, "others change it too; please try again")

    async def _live(self, resource: ResourceType, name: str, namespace: str) -> JsonObject | None:
        try:
            return await self._client.get(resource, name, namespace)
        except StatusError as error:
            if errors.is_not_found(error):
                return None
            raise


async def refuse_others(client: Client, user: User | None, vmi: JsonObject) -> None:
    """Refuse a token that was issued for an earlier machine of the same name. Raises StatusError.

    The garbage collector removes that machine's account, but a new machine may be there before.
    """
    namespace, name = meta.namespace(vmi), meta.name(vmi)
    account_name = access_name(name)
    if user is None or user.name != f"system:serviceaccount:{namespace}:{account_name}":
        return
    account: JsonObject | None = None
    with errors.ignoring(404):
        account = await client.get(resources.SERVICE_ACCOUNTS, account_name, namespace)
    if account is not None and (not is_issued(account) or belongs_to(account, vmi)):
        return
    raise errors.forbidden(
        VIRTUAL_MACHINE_INSTANCES.group_resource, name, "the token was issued for another VirtualMachine"
    )
