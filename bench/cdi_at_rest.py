"""What CDI takes at rest in the compact layout: the operator's process with it, and without it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from bench import memory
from bench.figures import heading, row
from kubecore.client import Client
from kubecore.json import JsonObject, get_list
from kubecore.objects import meta
from kubecore.resources import DEPLOYMENTS, PODS

_NAMESPACE, _OPERATOR = "kubevirt", "virt-operator"
_CDI = "cdi-operator"
_ROLLOUT_SECONDS, _SETTLE_SECONDS = 300.0, 30.0
_TARGET_MIB = 60


async def at_rest(client: Client) -> None:
    """Print the difference. The operator is started twice, at last as it was."""
    found = await client.get(DEPLOYMENTS, _OPERATOR, _NAMESPACE)
    pod = found["spec"]["template"]
    components = str(pod["spec"]["containers"][0]["command"][2])
    annotations = meta.annotations(pod)
    without = ",".join(each for each in components.split(",") if each != _CDI)
    heading("memory at rest, all of CDI", "with it", "without it", "target")
    figures = [await _weigh(client, each, annotations) for each in (without, components)]
    rest = figures[1] - figures[0]
    row(
        f"difference: {rest:.0f} MiB",
        f"{figures[1]:.0f} MiB",
        beside=f"{figures[0]:.0f} MiB",
        target=f"{_TARGET_MIB} MiB",
        met=rest <= _TARGET_MIB,
    )


async def _weigh(client: Client, components: str, annotations: Mapping[str, str]) -> float:
    """MiB of a new operator's process with these components, after a while."""
    place = "/spec/template/spec/containers/0/command/2"
    note = {"bench.virtplane.io/components": components}
    patch: list[JsonObject] = [
        {"op": "replace", "path": place, "value": components},
        {"op": "add", "path": "/spec/template/metadata/annotations", "value": {**annotations, **note}},
    ]
    await client.patch(DEPLOYMENTS, _OPERATOR, patch, _NAMESPACE, type="json")
    async with asyncio.timeout(_ROLLOUT_SECONDS):
        while (pod := await _only_pod(client, note)) is None:  # noqa: ASYNC110 - has no event here
            await asyncio.sleep(1.0)
    await asyncio.sleep(_SETTLE_SECONDS)
    own = [each for each in memory.pod_processes(meta.uid(pod)) if "shim" not in each.command]
    return sum(each.pss for each in own) / 1024


async def _only_pod(client: Client, note: dict[str, str]) -> JsonObject | None:
    """The operator's pod once it is ready, and no other is left."""
    listed = get_list(await client.list(PODS, _NAMESPACE), "items")
    pods = [each for each in listed if meta.name(each).startswith(f"{_OPERATOR}-")]
    if len(pods) != 1 or not note.items() <= meta.annotations(pods[0]).items():
        return None
    conditions = get_list(pods[0], "status", "conditions")
    is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return pods[0] if is_ready else None
