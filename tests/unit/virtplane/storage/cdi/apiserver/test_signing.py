"""The key that tokens are signed with."""

from __future__ import annotations

import base64

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.testing import MemoryApi
from virtplane.storage.cdi.apiserver.signing import SigningKey
from virtplane.storage.cdi.tokens import Operation, Payload, Verifier, new_signing_key

_WHERE = ("cdi-api-signing-key", "cdi")
_PAYLOAD = Payload(Operation.UPLOAD, "claim", "ns")


def _verifies(key: SigningKey, secret: JsonObject) -> bool:
    assert key.signer is not None
    verifier = Verifier("cdi-apiserver", base64.b64decode(secret["data"]["id_rsa.pub"]))
    return verifier.verify(key.signer.sign(_PAYLOAD)).name == "claim"


async def test_the_key_is_made_once_for_all_replicas() -> None:
    api = MemoryApi([resources.SECRETS])
    first, second = (SigningKey(api.client(), "cdi") for _ in range(2))
    assert (await first.refresh(), await second.refresh()) == (True, True)
    secret = await api.client().get(resources.SECRETS, *_WHERE)
    assert _verifies(first, secret) and _verifies(second, secret)


async def test_a_key_that_was_replaced_is_used() -> None:
    api = MemoryApi([resources.SECRETS])
    key = SigningKey(api.client(), "cdi")
    await key.refresh()
    secret = await api.client().get(resources.SECRETS, *_WHERE)
    changed = {**secret, "data": new_signing_key()}
    await api.client().update(resources.SECRETS, changed)
    assert await key.refresh()
    assert _verifies(key, changed)


async def test_a_secret_without_a_key_leaves_the_last_one_in_use() -> None:
    api = MemoryApi([resources.SECRETS])
    key = SigningKey(api.client(), "cdi")
    await key.refresh()
    secret = await api.client().get(resources.SECRETS, *_WHERE)
    await api.client().update(resources.SECRETS, {**secret, "data": {"id_rsa": "bm9uZQ=="}})
    assert await key.refresh() is False
    assert _verifies(key, secret)
