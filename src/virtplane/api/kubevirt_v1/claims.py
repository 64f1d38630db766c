"""Dynamic resource claims."""

from __future__ import annotations

from virtplane.api.markers import ApiStruct


class ClaimRequest(ApiStruct, kw_only=True):
    """A request of a resource claim that provides the device."""

    claim_name: str | None = None
    request_name: str | None = None


class VirtualMachineInstanceResourceClaim(ApiStruct, kw_only=True):
    """A dynamic resource claim that devices of the guest refer to."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
