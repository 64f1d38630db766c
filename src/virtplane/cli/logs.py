"""Logs of virtplane's own components, read from their pods."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from kubecore import resources
from kubecore.client import Client, ConnectionFailed, load_kubeconfig
from kubecore.errors import StatusError
from kubecore.json import get_list, get_str
from kubecore.objects import meta
from virtplane.api import labels
from virtplane.cli.terminal import CommandError, say
from virtplane.components import CDI_COMPONENTS, COMPACT_CONTROL_PLANE

COMPONENTS = (
    *("cdi-apiserver", "cdi-deployment", "cdi-operator", "cdi-uploadproxy"),
    *("virt-api", "virt-controller", "virt-handler", "virt-operator"),
)


def show(kubeconfig: Path, namespace: str, component: str, *, lines: int, follow: bool) -> None:
    """Write the last `lines` of a component's log; with `follow`, what comes after. Raises CommandError."""
    try:
        asyncio.run(_show(kubeconfig, namespace, component, lines=lines, follow=follow))
    except (ConnectionFailed, StatusError) as error:
        raise CommandError(
            f"The log of {component} cannot be read.",
            str(error),
            "The cluster's own components: ./virtplane status, ./virtplane logs apiserver",
        ) from error


async def _show(kubeconfig: Path, namespace: str, component: str, *, lines: int, follow: bool) -> None:
    async with Client(load_kubeconfig(kubeconfig)) as client:
        await write_logs(client, namespace, component, _write, lines=lines, follow=follow)


def _write(text: str) -> None:
    """Write to standard output and flush, for readers at the end of a pipe."""
    sys.stdout.write(text)
    sys.stdout.flush()


async def write_logs(
    client: Client,
    namespace: str,
    component: str,
    write: Callable[[str], object],
    *,
    lines: int,
    follow: bool,
) -> None:
    """Pass the log of a component to `write`. Raises CommandError, StatusError, ConnectionFailed.

    Of a component with several pods, each line begins with the name of its pod. Where the log of one cannot
    be read, for example because its node is switched off, those of the others come all the same.
    """
    pods = await _pods(client, namespace, component)
    query = {"tailLines": str(lines)} | ({"follow": "true"} if follow else {})
    width = max(map(len, pods))
    failures: dict[str, ConnectionFailed | StatusError] = {}

    async def pass_on(pod: str) -> None:
        prefix = f"{pod:{width}} " if len(pods) > 1 else ""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        try:
            async for line in client.stream(path, query=query):
                write(f"{prefix}{line.decode(errors='replace')}\n")
        except (ConnectionFailed, StatusError) as error:
            failures[pod] = error

    if follow:
        await asyncio.gather(*(pass_on(pod) for pod in pods))
    else:
        for pod in pods:
            await pass_on(pod)
    if len(failures) == len(pods):
        raise failures[pods[0]]
    if failures:
        raise CommandError(
            f"Not every log of {component} can be read.",
            "\n".join(f"{pod}: {error}" for pod, error in failures.items()),
        )


async def _pods(client: Client, namespace: str, component: str) -> list[str]:
    """Names of the pods in which a component runs: its own, or the operator's in the compact layout."""
    for label in dict.fromkeys((component, COMPACT_CONTROL_PLANE[0])):
        found = await client.list(resources.PODS, namespace, label_selector=f"{labels.APP}={label}")
        names = sorted(meta.name(pod) for pod in get_list(found, "items") if has_log(pod))
        if names:
            if label != component:
                say(f"{component} runs in the process of {label}, whose log follows.")
            return names
        if component not in (*COMPACT_CONTROL_PLANE, *CDI_COMPONENTS):
            break
    raise CommandError(
        f"There is no log of {component}.",
        f"No pod of it runs in namespace {namespace}.",
        f"Look at: kubectl -n {namespace} get pods,events",
    )


def has_log(pod: Mapping[str, object]) -> bool:
    """Whether a container of the pod has been started, so that there is a log."""
    return get_str(dict(pod), "status", "phase") in ("Running", "Succeeded", "Failed")
