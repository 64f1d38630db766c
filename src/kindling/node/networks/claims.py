"""Addresses that outlive a pod: IPAMClaims, which keep what the first pod got for those after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindling.node.networks.problems import NetworkProblem
from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import get_list, get_str
from kubecore.resources import ResourceType

CLAIMS = ResourceType("k8s.cni.cncf.io", "v1alpha1", "ipamclaims", "IPAMClaim")
MAX_ADDRESSES = 2


class Claims:
    """Reads and fulfils the claims of pods."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def addresses(self, namespace: str, name: str, network: str) -> tuple[str, ...]:
        """The addresses that a claim holds, or else asks for; none for a new one. Raises NetworkProblem."""
        try:
            claim = await self._client.get(CLAIMS, name, namespace)
        except (StatusError, ConnectionFailed) as error:
            raise NetworkProblem(f"failed to get IPAMClaim {namespace}/{name}: {error}") from error
        of = get_str(claim, "spec", "network")
        if of != network:
            raise NetworkProblem(f"IPAMClaim {namespace}/{name} is for network {of!r}, not {network!r}")
        held = get_list(claim, "status", "ips") or get_list(claim, "spec", "ipRequests")
        return tuple(str(item) for item in held[:MAX_ADDRESSES])

    async def fulfil(self, namespace: str, name: str, pod: str, result: Mapping[str, Any]) -> None:
        """Record what `pod` got. Raises NetworkProblem."""
        got = [get_str(item, "address") for item in get_list(result, "ips")][:MAX_ADDRESSES]
        status = {"status": {"ips": got, "ownerPod": pod}}
        try:
            await self._client.patch(CLAIMS, name, status, namespace, type="merge", subresource="status")
        except (StatusError, ConnectionFailed) as error:
            raise NetworkProblem(
                f"failed to update the status of IPAMClaim {namespace}/{name}: {error}"
            ) from error
