"""``virtplane install``: put virtplane on a Kubernetes cluster, and wait until it is available."""

from __future__ import annotations

import argparse
import asyncio
import time

from kubecore.client import Client, ConnectionFailed
from kubecore.client.config import ConfigError
from kubecore.client.kubeconfig import load_kubeconfig
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.resources import ResourceType
from virtplane.api.resources import KUBEVIRTS
from virtplane.cli.terminal import CommandError, report, step
from virtplane.operator.manifests import KUBEVIRT_NAME, install_objects, kubevirt_object

DEFAULT_NAMESPACE = "openshift-cnv"
DEFAULT_IMAGE = "localhost/virtplane:latest"
_FIELD_MANAGER = "virtplane-install"
_POLL_SECONDS = 0.2


async def install(
    client: Client,
    *,
    namespace: str,
    image: str,
    layout: str,
    use_emulation: bool,
    dense: bool = False,
    timeout_seconds: float = 300.0,
) -> None:
    """Apply the operator and the KubeVirt object and wait for the condition Available.

    `dense` is for small machines: guests request little of a processor.

    Safe to repeat. Raises CommandError.
    """
    deadline = time.monotonic() + timeout_seconds
    with step("Applying the operator"):
        for obj in install_objects(namespace, image, layout):
            await _apply(client, obj, deadline)
        await _apply(client, kubevirt_object(namespace, use_emulation, dense=dense), deadline)
    with step("Waiting for virtplane to be available"):
        await _wait_available(client, namespace, deadline)


async def _apply(client: Client, obj: JsonObject, deadline: float) -> None:
    """Server-side apply; a kind that is being established and a webhook that starts are waited for."""
    trouble = "The cluster does not serve this kind."
    while True:
        try:
            resource = await _resource_of(client, obj)
            if resource is not None:
                namespace = get_str(obj, "metadata", "namespace") or None
                name = get_str(obj, "metadata", "name")
                await client.patch(
                    resource, name, obj, namespace, type="apply", field_manager=_FIELD_MANAGER, force=True
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
    """The resource of an object's kind by discovery; None while it is not served."""
    group, _, version = get_str(obj, "apiVersion").rpartition("/")
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    response = await client.request("GET", path)
    for entry in get_list(response.json(), "resources"):
        if entry.get("kind") == get_str(obj, "kind") and "/" not in entry.get("name", ""):
            return ResourceType(group, version, entry["name"], entry["kind"], bool(entry.get("namespaced")))
    return None


async def _wait_available(client: Client, namespace: str, deadline: float) -> None:
    kubevirt: JsonObject = {}
    while time.monotonic() < deadline:
        kubevirt = await client.get(KUBEVIRTS, KUBEVIRT_NAME, namespace)
        conditions = {item.get("type"): item for item in get_list(kubevirt, "status", "conditions")}
        available = get_object(conditions, "Available")
        if get_str(kubevirt, "status", "phase") == "Deployed" and available.get("status") == "True":
            return
        await asyncio.sleep(_POLL_SECONDS)
    texts = [
        f"{item.get('type')}={item.get('status')}: {item.get('message', '')}"
        for item in get_list(kubevirt, "status", "conditions")
    ]
    raise CommandError(
        "virtplane did not become available.",
        f"phase {get_str(kubevirt, 'status', 'phase') or 'unknown'}; " + "; ".join(texts),
        f"Look at: kubectl -n {namespace} get pods,events",
    )


def _name(obj: JsonObject) -> str:
    return f"{get_str(obj, 'kind')} {get_str(obj, 'metadata', 'name')}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="virtplane install", description=__doc__)
    parser.add_argument("-n", "--namespace", default=DEFAULT_NAMESPACE, help=f"default: {DEFAULT_NAMESPACE}")
    parser.add_argument("--image", default=DEFAULT_IMAGE, help="image that `virtplane image` built")
    parser.add_argument("--kubeconfig", help="default: $KUBECONFIG, else ~/.kube/config")
    parser.add_argument("--context", help="a context of the kubeconfig")
    parser.add_argument(
        "--layout",
        choices=("compact", "distributed"),
        default="distributed",
        help="compact: one process is the control plane; distributed (default): a Deployment each",
    )
    parser.add_argument(
        "--use-emulation", action="store_true", help="run guests without KVM where nodes have none"
    )
    parser.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS")
    return parser


def main(arguments: list[str]) -> int:
    """Command line."""
    options = _parser().parse_args(arguments)
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
        await install(
            client,
            namespace=options.namespace,
            image=options.image,
            layout=options.layout,
            use_emulation=options.use_emulation,
            timeout_seconds=options.timeout,
        )
