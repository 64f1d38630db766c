"""Network attachment definitions: which resource of nodes the devices on a network are."""

from __future__ import annotations

from kubecore.errors import StatusError, is_not_found
from kubecore.objects import meta
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.vmi.errors import SyncError
from virtplane.compute.launcherpod import network


async def network_resources(cluster: Cluster, vmi: VirtualMachineInstance) -> dict[str, str] | SyncError:
    """The resource of the devices on each secondary network, or which definition does not exist.

    Empty while the gate ExternalNetResourceInjection is on: then a webhook of the network's operator adds the
    requests to the launcher. Raises StatusError.
    """
    found: dict[str, str] = {}
    if cluster.settings().gate("ExternalNetResourceInjection"):
        return found
    for name, (namespace, definition) in network.definitions(vmi).items():
        try:
            document = await cluster.client.get(kinds.NETWORK_ATTACHMENT_DEFINITIONS, definition, namespace)
        except StatusError as error:
            if not is_not_found(error):
                raise
            text = f"failed to locate network attachment definition {namespace}/{definition}"
            return SyncError("FailedCreate", f"failed to render launch manifest: {text}")
        resource = meta.annotations(document).get(labels.NETWORK_RESOURCE)
        if resource:
            found[name] = resource
    return found
