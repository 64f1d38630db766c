"""Encrypted guests."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import ApiStruct, describe


class SEVAttestation(ApiStruct, kw_only=True):
    """Have the owner attest the guest before it starts. No effect yet: the guest does not wait."""


class SEVPolicy(ApiStruct, kw_only=True):
    """What SEV guarantees beyond encrypted memory."""

    encrypted_state: Annotated[
        bool | None, describe("Encrypt the guest's registers, too (SEV-ES), which the node must support.")
    ] = None


class SEV(ApiStruct, kw_only=True):
    """AMD Secure Encrypted Virtualization. Needs EFI without secureBoot."""

    attestation: SEVAttestation | None = None
    dh_cert: Annotated[str | None, describe("The owner's Diffie-Hellman certificate in base64.")] = None
    policy: SEVPolicy | None = None
    session: Annotated[str | None, describe("The owner's session data in base64.")] = None


class SEVSNP(ApiStruct, kw_only=True):
    """AMD SEV with Secure Nested Paging. No effect yet but on the choice of nodes: libvirt 9 cannot start
    such guests.
    """


class TDX(ApiStruct, kw_only=True):
    """Intel Trust Domain Extensions. No effect yet but on the choice of nodes: libvirt 9 cannot start such
    guests.
    """


class LaunchSecurity(ApiStruct, kw_only=True):
    """Memory encryption of the guest, by one technology. Needs the gate WorkloadEncryptionSEV or
    WorkloadEncryptionTDX.
    """

    sev: SEV | None = None
    snp: SEVSNP | None = None
    tdx: TDX | None = None
