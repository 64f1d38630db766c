"""Why a pod is not gone yet, and what that means for whoever waits for it."""

from __future__ import annotations

from kubecore import resources
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects import meta
from virtplane.api import labels
from virtplane.deletions.reading import Situation
from virtplane.deletions.waits import Wait, has_passed, later

SLACK_SECONDS = 60.0
"""After its grace period a pod is gone in a moment; so long it takes at most where nothing is wrong."""
_MAY_RUN = "what ran in it may run still, and a disk must not be written by two"


async def of_pod(situation: Situation, pod: JsonObject) -> Wait | None:
    """What keeps a pod that somebody waits for; None where it is not being deleted. Raises StatusError."""
    if not meta.is_being_deleted(pod):
        return None
    name = get_str(pod, "spec", "nodeName")
    node = await situation.found(resources.NODES, name)
    return decided(situation, pod, node, await situation.told(pod))


def decided(situation: Situation, pod: JsonObject, node: JsonObject | None, warning: str) -> Wait:
    """What keeps a deleted pod; `node` is None where it is not known."""
    name, where = meta.name(pod), get_str(pod, "spec", "nodeName")
    end = meta.deletion_timestamp(pod)
    silent = _silence(node)
    if silent:
        return Wait(
            f"its pod {name} is on node {where}, which has not reported since {silent}",
            f"bring the node back; or, once it is certainly off: {out_of_service(where)}",
            unsafe=_MAY_RUN,
        )
    if not has_passed(later(end, SLACK_SECONDS), situation.now):
        grace = get_object(pod, "metadata").get("deletionGracePeriodSeconds") or 0
        return Wait(
            f"its pod {name} has {grace} s to end ({_holder(pod)})",
            f"to end it at once: kubectl delete pod {name} -n {meta.namespace(pod)} --grace-period=1",
            until=later(end, SLACK_SECONDS),
            is_expected=True,
        )
    if meta.finalizers(pod):
        held = ", ".join(meta.finalizers(pod))
        within = f"-n {meta.namespace(pod)} --show-managed-fields -o yaml"
        return Wait(
            f"its pod {name} is kept by finalizers of others: {held}",
            f"see who set them: kubectl get pod {name} {within}",
            unsafe=_MAY_RUN,
        )
    said = f" ({warning})" if warning else ""
    return Wait(
        f"node {where} has not ended its pod {name}, whose time was over at {end}{said}",
        "repair what it hangs on (storage that does not answer keeps processes from ending); or switch the"
        f" node off, and then: {out_of_service(where)}",
        unsafe=_MAY_RUN,
    )


def out_of_service(node: str) -> str:
    """The command that says of a node that it is off, whereupon Kubernetes forgets its pods and volumes."""
    return f"kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"


def _holder(pod: JsonObject) -> str:
    is_launcher = meta.labels(pod).get("kubevirt.io") == "virt-launcher"
    return "its guest shuts down" if is_launcher else "its containers end"


def _silence(node: JsonObject | None) -> str:
    """Since when a node has not reported; empty where it does, or is not known."""
    ready = meta.get_condition(node, "Ready") if node is not None else None
    if ready is None or ready.get("status") != "Unknown":
        return ""
    return str(ready.get("lastHeartbeatTime") or ready.get("lastTransitionTime") or "an unknown time")


def guest_of(pod: JsonObject) -> str:
    """The instance of a launcher or an attachment pod; empty for other pods."""
    owner = meta.controller_of(pod) or {}
    if owner.get("kind") == "VirtualMachineInstance":
        return get_str(owner, "name")
    return meta.annotations(pod).get(labels.OWNER_VMI_NAME, "")
