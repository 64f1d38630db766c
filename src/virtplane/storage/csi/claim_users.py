"""Pods, as far as they use claims."""

from __future__ import annotations

from virtplane.api.markers import ApiStruct
from virtplane.api.meta_v1 import ObjectMeta


class _ClaimSource(ApiStruct, kw_only=True):
    claim_name: str = ""


class _Volume(ApiStruct, kw_only=True):
    persistent_volume_claim: _ClaimSource | None = None


class _PodSpec(ApiStruct, kw_only=True):
    volumes: tuple[_Volume, ...] = ()


class _PodStatus(ApiStruct, kw_only=True):
    phase: str = ""


class PodWithClaims(ApiStruct, kw_only=True):
    """A pod, as far as it uses claims."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


def claims_in_use(pod: PodWithClaims) -> list[str]:
    """Namespaces and names of the claims that the pod uses; of none once it has ended."""
    if pod.status.phase in ("Succeeded", "Failed"):
        return []
    sources = [volume.persistent_volume_claim for volume in pod.spec.volumes]
    return [f"{pod.metadata.namespace}/{source.claim_name}" for source in sources if source is not None]
