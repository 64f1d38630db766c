"""``virtplane install``: installs virtplane on a Kubernetes cluster, and waits until it is available."""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import replace

from kubecore.client import Client, ConnectionFailed
from kubecore.client.config import ConfigError
from kubecore.client.kubeconfig import load_kubeconfig
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_list, get_str
from kubecore.resources import DEPLOYMENTS, NODES, PODS, ResourceType
from virtplane.api import cdi_names, labels
from virtplane.api.paths import KUBELET_ROOT
from virtplane.api.resources import CDIS, KUBEVIRTS
from virtplane.cli.installation import (
    FIELD_MANAGER,
    is_available,
    is_away,
    is_cdi_available,
    is_current,
    is_for_guests,
    is_rolled_out,
    kvm_notice,
    other_cdi,
    other_installation,
    stuck_containers,
)
from virtplane.cli.terminal import CommandError, report, say, step
from virtplane.operators.kubevirt.manifests import (
    CDI_NAME,
    KUBEVIRT_NAME,
    InstallOptions,
    cdi_object,
    install_objects,
    kubevirt_object,
)

DEFAULT_NAMESPACE = "openshift-cnv"
DEFAULT_IMAGE = "localhost/virtplane:latest"
_POLL_SECONDS = 0.2
_STUCK_SECONDS = 30.0
"""How long the same containers may be unable to start before the installation is given up."""

_NODE_SECONDS = 15.0
"""How long virt-handler may take from its start to the first heartbeat."""

_OPERATOR = "virt-operator"


async def install(client: Client, options: InstallOptions, *, timeout_seconds: float = 300.0) -> None:
    """Apply the operators, the KubeVirt and the CDI object and wait until all of it runs and is available.

    It can be repeated; with another image it upgrades, and returns when the upgrade is complete. A CDI of
    somebody else is left as it is. Raises CommandError; if there is another installation, before it writes
    anything.
    """
    await _check_alone(client, options.namespace)
    if other := await _other_cdi(client, options.namespace):
        say(f"{other}: it is left as it is, and data volumes are its work.")
        options = replace(options, has_cdi=False)
    deadline = time.monotonic() + timeout_seconds
    with step("Applying the operator"):
        for obj in install_objects(options):
            await apply(client, obj, deadline)
        await apply(client, kubevirt_object(options), deadline)
        if options.has_cdi:
            await apply(client, cdi_object(), deadline)
    with step("Waiting for virtplane to be available"):
        await _wait_available(client, options, deadline)
    notice = kvm_notice(await _nodes_for_guests(client), emulation=options.use_emulation)
    if notice:
        say(notice)


async def _check_alone(client: Client, namespace: str) -> None:
    """Raises CommandError where another installation is on the cluster.

    Webhooks, API services and roles are cluster-wide and refer to one namespace: a second installation would
    replace those of the first, which would then not work.
    """
    try:
        kubevirts = get_list(await _list_or_nothing(client, KUBEVIRTS), "items")
        selector = f"{labels.APP}={_OPERATOR}"
        operators = get_list(await _list_or_nothing(client, DEPLOYMENTS, selector), "items")
    except StatusError as error:
        raise CommandError(
            "It is unknown whether virtplane or KubeVirt is installed on this cluster already.",
            str(error),
            "Use the kubeconfig of an administrator of the cluster.",
        ) from error
    if problem := other_installation(kubevirts, operators, namespace, FIELD_MANAGER):
        raise problem


async def _other_cdi(client: Client, namespace: str) -> str:
    """What shows that the cluster has a CDI of somebody else; empty if it has none.

    Raises CommandError where that cannot be seen.
    """
    try:
        operators = get_list(
            await _list_or_nothing(client, DEPLOYMENTS, f"name={cdi_names.OPERATOR}"), "items"
        )
        objects = get_list(await _list_or_nothing(client, CDIS), "items")
    except StatusError as error:
        raise CommandError(
            "It is unknown whether CDI is installed on this cluster already.",
            str(error),
            "Use the kubeconfig of an administrator of the cluster.",
        ) from error
    return other_cdi(objects, operators, namespace, FIELD_MANAGER)


async def _list_or_nothing(client: Client, resource: ResourceType, label_selector: str = "") -> JsonObject:
    """All objects of a kind; an empty list if the cluster does not serve the kind."""
    try:
        return await client.list(resource, label_selector=label_selector)
    except StatusError as error:
        if is_not_found(error):
            return {}
        raise


async def apply(client: Client, obj: JsonObject, deadline: float) -> None:
    """Server-side apply; retries while a kind is being established or a webhook starts."""
    trouble = "The cluster does not serve this kind."
    while True:
        try:
            resource = await _resource_of(client, obj)
            if resource is not None:
                namespace = get_str(obj, "metadata", "namespace") or None
                name = get_str(obj, "metadata", "name")
                await client.patch(
                    resource, name, obj, namespace, type="apply", field_manager=FIELD_MANAGER, force=True
                )
                return
        except StatusError as error:
            if error.code not in (404, 429, 500, 503):
                raise CommandError(
                    f"{_name(obj)} could not be applied.",
                    str(error),
                    "Check the permissions of this kubeconfig.",
                ) from error
            trouble = str(error)
        if time.monotonic() > deadline:
            raise CommandError(f"{_name(obj)} could not be applied.", trouble)
        await asyncio.sleep(_POLL_SECONDS)


async def _resource_of(client: Client, obj: JsonObject) -> ResourceType | None:
    """The resource of an object's kind from discovery; None if it is not served yet."""
    group, _, version = get_str(obj, "apiVersion").rpartition("/")
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    response = await client.request("GET", path)
    for entry in get_list(response.json(), "resources"):
        if entry.get("kind") == get_str(obj, "kind") and "/" not in entry.get("name", ""):
            return ResourceType(group, version, entry["name"], entry["kind"], bool(entry.get("namespaced")))
    return None


async def _wait_available(client: Client, options: InstallOptions, deadline: float) -> None:
    """Wait. Raises CommandError at the deadline, or earlier if the same containers stay unable to start."""
    namespace = options.namespace
    look = f"Look at: kubectl -n {namespace} get pods,events"
    stuck: dict[str, str] = {}
    stuck_since = time.monotonic()
    while time.monotonic() < deadline:
        if await _is_done(client, options):
            return
        found = stuck_containers(get_list(await client.list(PODS, namespace), "items"))
        # The last messages have times, so that they differ after every try.
        if not found or found.keys() != stuck.keys():
            stuck_since = time.monotonic()
        elif time.monotonic() - stuck_since > _STUCK_SECONDS:
            raise CommandError("virtplane cannot start.", "\n".join(_lines(found)), look)
        stuck = found
        await asyncio.sleep(_POLL_SECONDS)
    told = [_condition_text(await client.get(KUBEVIRTS, KUBEVIRT_NAME, namespace))]
    if options.has_cdi:
        told.append(_condition_text(await client.get(CDIS, CDI_NAME)))
    raise CommandError("virtplane did not become available.", "\n".join([*told, *_lines(stuck)]), look)


def _lines(stuck: dict[str, str]) -> list[str]:
    return sorted(f"{where}: {message}" for where, message in stuck.items())


def _condition_text(obj: JsonObject) -> str:
    conditions = [
        f"{item.get('type')}={item.get('status')}: {item.get('message', '')}"
        for item in get_list(obj, "status", "conditions")
    ]
    phase = f"phase {get_str(obj, 'status', 'phase') or 'unknown'}"
    return f"{_name(obj)}: {'; '.join([phase, *conditions])}"


async def _nodes_for_guests(client: Client) -> list[JsonObject]:
    """All nodes, once virt-handler reports one as schedulable for guests, which takes a moment after its
    start.
    """
    deadline = time.monotonic() + _NODE_SECONDS
    while True:
        nodes = get_list(await client.list(NODES), "items")
        if any(is_for_guests(node) for node in nodes) or time.monotonic() > deadline:
            return nodes
        await asyncio.sleep(_POLL_SECONDS)


async def _is_done(client: Client, options: InstallOptions) -> bool:
    """Whether only operators of this image run, and they report everything else as available."""
    try:
        operator = await client.get(DEPLOYMENTS, _OPERATOR, options.namespace)
        deployments = get_list(await client.list(DEPLOYMENTS, options.namespace), "items")
        kubevirt = await client.get(KUBEVIRTS, KUBEVIRT_NAME, options.namespace)
        cdi = await client.get(CDIS, CDI_NAME) if options.has_cdi else None
        nodes = get_list(await client.list(NODES), "items")
    except StatusError as error:
        if error.code in (404, 429) or error.code >= 500:
            return False
        raise
    wanted = {"image": options.image, "layout": options.layout, "kubeletRoot": options.kubelet_root}
    is_up = is_available(kubevirt, wanted, nodes_away=any(map(is_away, nodes)))
    if not is_up or not is_rolled_out(operator) or not (cdi is None or is_cdi_available(cdi)):
        return False
    return all(is_current(each, options.image) for each in deployments)


def _name(obj: JsonObject) -> str:
    return f"{get_str(obj, 'kind')} {get_str(obj, 'metadata', 'name')}"


def parser() -> argparse.ArgumentParser:
    """The options of ``install``."""
    made = argparse.ArgumentParser(
        prog="virtplane install", description="Install virtplane on a cluster and wait until it is available."
    )
    made.add_argument("-n", "--namespace", default=DEFAULT_NAMESPACE, help=f"default: {DEFAULT_NAMESPACE}")
    made.add_argument("--image", default=DEFAULT_IMAGE, help="image that `virtplane image` built")
    made.add_argument("--kubeconfig", help="default: $KUBECONFIG, else ~/.kube/config")
    made.add_argument("--context", help="a context of the kubeconfig")
    made.add_argument(
        "--layout",
        choices=("compact", "distributed"),
        default="distributed",
        help="compact: one process is the control plane; distributed (default): a Deployment each",
    )
    made.add_argument(
        "--emulation",
        "--use-emulation",
        action="store_true",
        help="run guests under emulation where nodes have no usable KVM",
    )
    made.add_argument(
        "--kubelet-root",
        default=KUBELET_ROOT,
        metavar="DIR",
        help=f"the kubelets' --root-dir (default: {KUBELET_ROOT})",
    )
    made.add_argument(
        "--require-webhook-certificate",
        action="store_true",
        help="webhooks answer only a client with the front proxy's certificate, which the API server must be"
        " configured to show them (kubeConfigFile of WebhookAdmissionConfiguration)",
    )
    made.add_argument(
        "--guestfs-image",
        default="",
        metavar="NAME",
        help="what `virtctl guestfs` runs (default: libguestfs-tools in the registry of --image)",
    )
    made.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS")
    return made


def main(arguments: list[str]) -> int:
    """Command line."""
    options = parser().parse_args(arguments)
    try:
        asyncio.run(_main(options))
    except CommandError as error:
        return report(error)
    except (ConfigError, ConnectionFailed) as error:
        do = "Name a kubeconfig with --kubeconfig, or start the embedded cluster: ./virtplane up"
        return report(CommandError("The cluster cannot be reached.", str(error), do))
    return 0


async def _main(options: argparse.Namespace) -> None:
    async with Client(load_kubeconfig(options.kubeconfig, options.context)) as client:
        wanted = InstallOptions(
            namespace=options.namespace,
            image=options.image,
            layout=options.layout,
            use_emulation=options.emulation,
            kubelet_root=options.kubelet_root,
            require_webhook_certificate=options.require_webhook_certificate,
            guestfs_image=options.guestfs_image,
        )
        await install(client, wanted, timeout_seconds=options.timeout)
