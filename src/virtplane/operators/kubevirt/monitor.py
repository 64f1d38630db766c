"""Keeps ServiceMonitor and PrometheusRule of the components, where the cluster has Prometheus' operator.

The monitor's namespace is not the installation's and may change: whatever is managed elsewhere is found by
its labels.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.objects import meta
from virtplane.api.resources import PROMETHEUS_RULES, SERVICE_MONITORS
from virtplane.operators.kit import optional
from virtplane.operators.kit.apply import Applier
from virtplane.operators.kubevirt.product import KUBEVIRT
from virtplane.operators.kubevirt.strategy.alerts import prometheus_rules
from virtplane.operators.kubevirt.strategy.monitoring import monitor_namespaces, service_monitor
from virtplane.operators.kubevirt.strategy.parameters import Parameters


async def keep_monitor(client: Client, parameters: Parameters) -> None:
    """Have one ServiceMonitor in the first of the namespaces that exists, and none elsewhere.

    Raises StatusError, ConnectionFailed.
    """
    present = await optional.present(client, KUBEVIRT, SERVICE_MONITORS)
    if present is None:
        return
    namespace = await _first_existing(client, monitor_namespaces(parameters.spec))
    for document in present:
        if meta.namespace(document) != namespace:
            await optional.delete(client, SERVICE_MONITORS, document)
    if namespace:
        applier = Applier(client, KUBEVIRT, kinds=(SERVICE_MONITORS,))
        await applier.apply(service_monitor(parameters, namespace))


async def remove_monitor(client: Client) -> None:
    """Delete the ServiceMonitor wherever it is. Raises StatusError, ConnectionFailed."""
    await optional.delete_all(client, KUBEVIRT, SERVICE_MONITORS)


async def keep_rules(client: Client, parameters: Parameters, runbook_url: str) -> None:
    """Have the alerts in the namespace of the installation; ``%s`` in `runbook_url` is an alert's name.

    As in KubeVirt, the gate VMStatsCollector goes without them. Raises StatusError, ConnectionFailed.
    """
    if parameters.config.gate("VMStatsCollector"):
        await remove_rules(client)
    elif await optional.present(client, KUBEVIRT, PROMETHEUS_RULES) is not None:
        applier = Applier(client, KUBEVIRT, kinds=(PROMETHEUS_RULES,))
        await applier.apply(prometheus_rules(parameters, runbook_url))


async def remove_rules(client: Client) -> None:
    """Delete the alerts. Raises StatusError, ConnectionFailed."""
    await optional.delete_all(client, KUBEVIRT, PROMETHEUS_RULES)


async def _first_existing(client: Client, namespaces: Sequence[str]) -> str:
    for name in namespaces:
        with errors.ignoring(404):
            await client.get(resources.NAMESPACES, name)
            return name
    return ""
