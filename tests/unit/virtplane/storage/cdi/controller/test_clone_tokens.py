"""Who may clone from another namespace: only tokens that are bound to the very object."""

from __future__ import annotations

import base64

import pytest

from kubecore.resources import PERSISTENT_VOLUME_CLAIMS
from virtplane.api.resources import VOLUME_SNAPSHOTS
from virtplane.storage.cdi.controller.clones.tokens import CloneTokens, Permission
from virtplane.storage.cdi.tokens import (
    LONG_SECONDS,
    SHORT_SECONDS,
    InvalidToken,
    Operation,
    Payload,
    Signer,
    new_signing_key,
)

_PEM = base64.b64decode(new_signing_key()["id_rsa"])
_NOW = 1_800_000_000.0
_PERMISSION = Permission("images", "src", "ns", "dv")
_TARGET = {"targetNamespace": "ns", "targetName": "dv"}


def _tokens(now: float = _NOW) -> CloneTokens:
    return CloneTokens.of_key(_PEM, lambda: now)


def _short(operation: Operation = Operation.CLONE, name: str = "src", issuer: str = "cdi-apiserver") -> str:
    payload = Payload(operation, name, "images", params=_TARGET)
    return Signer(issuer, _PEM, SHORT_SECONDS, lambda: _NOW).sign(payload)


@pytest.mark.feature("STO-29")
def test_right_goes_from_the_user_to_the_data_volume_to_its_claim() -> None:
    tokens = _tokens()
    of_volume = tokens.exchanged(_short(), _PERMISSION, "dv-uid")
    of_claim = tokens.passed_on(of_volume, _PERMISSION, "dv-uid", "claim-uid")
    tokens.expect(of_claim, _PERMISSION, "claim-uid")
    _tokens(_NOW + LONG_SECONDS).expect(of_claim, _PERMISSION, "claim-uid")


@pytest.mark.feature("STO-29")
@pytest.mark.parametrize("uid", ["dv-uid", "other", ""])
def test_token_is_nothing_for_another_object(uid: str) -> None:
    tokens = _tokens()
    of_volume = tokens.exchanged(_short(), _PERMISSION, "dv-uid")
    of_claim = tokens.passed_on(of_volume, _PERMISSION, "dv-uid", "claim-uid")
    with pytest.raises(InvalidToken):
        tokens.expect(of_claim, _PERMISSION, uid)
    with pytest.raises(InvalidToken):
        tokens.passed_on(of_volume, _PERMISSION, "other", "claim-uid")


@pytest.mark.feature("STO-29")
@pytest.mark.parametrize(
    "permission",
    [
        Permission("images", "other", "ns", "dv"),
        Permission("theirs", "src", "ns", "dv"),
        Permission("images", "src", "other", "dv"),
        Permission("images", "src", "ns", "other"),
        Permission("images", "src", "ns", "dv", VOLUME_SNAPSHOTS),
    ],
)
def test_token_is_for_one_source_and_one_target(permission: Permission) -> None:
    tokens = _tokens()
    with pytest.raises(InvalidToken):
        tokens.exchanged(_short(), permission, "dv-uid")
    of_volume = tokens.exchanged(_short(), _PERMISSION, "dv-uid")
    with pytest.raises(InvalidToken):
        tokens.expect(of_volume, permission, "dv-uid")


@pytest.mark.feature("STO-29")
def test_short_tokens_those_of_uploads_and_unbound_ones_open_nothing() -> None:
    tokens = _tokens()
    unbound = Signer("cdi-deployment", _PEM, LONG_SECONDS, lambda: _NOW).sign(
        Payload(Operation.CLONE, "src", "images", PERSISTENT_VOLUME_CLAIMS, _TARGET)
    )
    for token in (_short(), unbound):
        with pytest.raises(InvalidToken):
            tokens.expect(token, _PERMISSION, "")
        with pytest.raises(InvalidToken):
            tokens.expect(token, _PERMISSION, "claim-uid")
    for token in (_short(Operation.UPLOAD), _short(issuer="cdi-deployment"), ""):
        with pytest.raises(InvalidToken):
            tokens.exchanged(token, _PERMISSION, "dv-uid")
    with pytest.raises(InvalidToken):
        _tokens(_NOW + 3600).exchanged(_short(), _PERMISSION, "dv-uid")
