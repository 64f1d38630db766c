"""What the authority of service accounts' tokens keeps of them."""

from __future__ import annotations

import tracemalloc
from typing import Any

from kindling.apiserver.auth.keys import new_key
from kindling.apiserver.auth.service_accounts import TokenAuthority

_ISSUER = "https://issuer"
_ACCOUNT = {"metadata": {"name": "a", "namespace": "n", "uid": "u"}}


class _Accounts:
    def get(self, resource: object, namespace: str | None, name: str) -> dict[str, Any]:
        return _ACCOUNT

    def list(self, resource: object, namespace: str | None = None) -> list[dict[str, Any]]:
        return []

    def exists(self, resource: object, namespace: str | None, name: str) -> bool:
        return True


def test_tokens_of_any_length_are_not_remembered() -> None:
    authority = TokenAuthority([new_key()], _ISSUER, (), _Accounts())
    audiences = [_ISSUER, *(f"{number}-" + "x" * 1000 for number in range(40))]
    tracemalloc.start()
    for _ in range(50):
        token, _ = authority.issue(_ACCOUNT, audiences, 600)
        assert authority.review(token, [_ISSUER]) is not None
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2 << 20
