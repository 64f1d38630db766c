"""Claims of devices: nothing on this cluster allocates them, so a pod that needs one can run nowhere yet."""

from __future__ import annotations

from kubecore.json import JsonObject, get_list
from kubecore.objects import meta

CANNOT_ALLOCATE = "cannot allocate all claims"
NOTHING_TO_CLAIM = "no new claims to deallocate"
STILL_WAITING = "still not schedulable"


class DeviceRules:
    """The device claims of one pod."""

    def __init__(self, pod: JsonObject) -> None:
        self.problem = ""
        """Why the pod can go nowhere, whatever the nodes offer; or nothing."""
        self.needs_devices = False
        """Whether the pod has a claim that must be allocated first."""
        known = {entry.get("name"): entry for entry in get_list(pod, "status", "resourceClaimStatuses")}
        for claim in get_list(pod, "spec", "resourceClaims"):
            if claim.get("resourceClaimName"):
                self.needs_devices = True
            elif claim.get("name") not in known:
                self.needs_devices = True
                self.problem = f'pod "{meta.namespace(pod)}/{meta.name(pod)}": ResourceClaim not created yet'
            elif known[claim["name"]].get("resourceClaimName"):  # without a name, no claim is needed
                self.needs_devices = True

    @property
    def hope(self) -> str:
        """What freeing the devices of other claims would do for the pod: nothing, in either case."""
        return STILL_WAITING if self.needs_devices else NOTHING_TO_CLAIM
