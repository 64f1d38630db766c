"""Dynamic resource claims."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import EMPTY_IS_SET, ApiStruct, describe


class ClaimRequest(ApiStruct, kw_only=True):
    """A request of a resource claim, which gives the device."""

    claim_name: Annotated[str | None, describe("The entry of resourceClaims.")] = None
    request_name: Annotated[str | None, describe("The request of that claim.")] = None


class VirtualMachineInstanceResourceClaim(ApiStruct, kw_only=True):
    """A dynamic resource claim of the pod that devices of the guest refer to."""

    name: Annotated[str, describe("The name that devices refer to.")]
    resource_claim_name: Annotated[
        str | None,
        describe("An existing ResourceClaim of the namespace; this or resourceClaimTemplateName."),
        EMPTY_IS_SET,
    ] = None
    resource_claim_template_name: Annotated[
        str | None,
        describe("The ResourceClaimTemplate of which the pod gets a claim of its own."),
        EMPTY_IS_SET,
    ] = None
