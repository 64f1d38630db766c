"""Encrypted guests."""

from __future__ import annotations

from virtplane.api.markers import ApiStruct


class SEVAttestation(ApiStruct, kw_only=True):
    """Have the owner attest the guest before it starts."""


class SEVPolicy(ApiStruct, kw_only=True):
    """What SEV guarantees."""

    encrypted_state: bool | None = None


class SEV(ApiStruct, kw_only=True):
    """AMD Secure Encrypted Virtualization."""

    attestation: SEVAttestation | None = None
    dh_cert: str | None = None
    policy: SEVPolicy | None = None
    session: str | None = None


class SEVSNP(ApiStruct, kw_only=True):
    """AMD SEV with Secure Nested Paging."""


class TDX(ApiStruct, kw_only=True):
    """Intel Trust Domain Extensions."""


class LaunchSecurity(ApiStruct, kw_only=True):
    """Memory encryption of the guest; one technology at most."""

    sev: SEV | None = None
    snp: SEVSNP | None = None
    tdx: TDX | None = None
