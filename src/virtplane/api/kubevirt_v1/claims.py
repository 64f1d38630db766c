"""Dynamic resource claims."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import EMPTY_IS_SET, ApiStruct


class ClaimRequest(ApiStruct, kw_only=True):
    """A request of a resource claim that provides the device."""

    claim_name: str | None = None
    request_name: str | None = None


class VirtualMachineInstanceResourceClaim(ApiStruct, kw_only=True):
    """A dynamic resource claim that devices of the guest refer to."""

    name: str
    resource_claim_name: Annotated[str | None, EMPTY_IS_SET] = None
    resource_claim_template_name: Annotated[str | None, EMPTY_IS_SET] = None
