"""The process of the controllers and the scheduler: ``kindling controllers``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from kindling.controllers.cluster_roles import ClusterRoleAggregation
from kindling.controllers.cron_jobs import CronJobController
from kindling.controllers.daemon_sets import DaemonSetController
from kindling.controllers.deployments import DeploymentController
from kindling.controllers.disruption import DisruptionController
from kindling.controllers.endpoint_mirroring import EndpointMirroring
from kindling.controllers.endpoint_slices import EndpointSliceController
from kindling.controllers.endpoints import EndpointsController
from kindling.controllers.environment import Environment
from kindling.controllers.ephemeral_volumes import EphemeralVolumes
from kindling.controllers.finished_jobs import FinishedJobs
from kindling.controllers.garbage_collector import GarbageCollector
from kindling.controllers.jobs import JobController
from kindling.controllers.namespaces import NamespaceController
from kindling.controllers.node_lifecycle import NodeLifecycleController
from kindling.controllers.node_roles import NodeRoles
from kindling.controllers.node_ttl import NodeTtl
from kindling.controllers.pod_gc import PodGarbageCollector
from kindling.controllers.replicas import replica_sets, replication_controllers
from kindling.controllers.resource_quotas import ResourceQuotaController
from kindling.controllers.root_ca import RootCaPublisher
from kindling.controllers.service_accounts import ServiceAccountController
from kindling.controllers.stateful_sets import StatefulSetController
from kindling.controllers.token_secrets import TokenSecrets, signer
from kindling.controllers.volume_protection import VolumeProtection
from kindling.controllers.volumes import VolumeController
from kindling.scheduler.loop import Scheduler
from kubecore.client import Client, ClientConfig, load_kubeconfig
from kubecore.json import JsonObject
from kubecore.runtime import ControllerMetrics, Health, Manager, serve_health, set_up_logging

logger = logging.getLogger(__name__)

CONTROLLERS: tuple[Callable[[Environment], object], ...] = (
    ClusterRoleAggregation,
    CronJobController,
    DaemonSetController,
    DeploymentController,
    DisruptionController,
    EndpointMirroring,
    EndpointSliceController,
    EndpointsController,
    EphemeralVolumes,
    FinishedJobs,
    GarbageCollector,
    JobController,
    NamespaceController,
    NodeLifecycleController,
    NodeRoles,
    NodeTtl,
    PodGarbageCollector,
    replica_sets,
    replication_controllers,
    ResourceQuotaController,
    RootCaPublisher,
    ServiceAccountController,
    StatefulSetController,
    TokenSecrets,
    VolumeProtection,
    VolumeController,
)
"""All controllers, in the order of their modules' names."""

CONTROLLER_USER_AGENT = "kube-controller-manager"
SCHEDULER_USER_AGENT = "kube-scheduler"


async def run(
    config: ClientConfig,
    *,
    scheduler_config: ClientConfig | None = None,
    root_ca: str | None = None,
    sign_token: Callable[[JsonObject, JsonObject], str] | None = None,
    health_port: int | None = None,
    control_planes: Collection[str] = (),
) -> None:
    """Run all controllers and the scheduler against one server until cancelled.

    The scheduler uses the credentials of `scheduler_config`, by default those of `config`. `root_ca` is the
    PEM that is published into namespaces (default: the authority of `config`); `sign_token` signs the tokens
    of account secrets; `control_planes` names the nodes that get the role of the control plane. With
    `health_port`, health and metrics are served on that port of this machine.
    """
    authority = root_ca if root_ca is not None else (config.ca_data or b"").decode()
    controllers_config = replace(config, user_agent=CONTROLLER_USER_AGENT)
    scheduler_config = replace(scheduler_config or config, user_agent=SCHEDULER_USER_AGENT)
    async with (
        Client(controllers_config) as controllers_client,
        Client(scheduler_config) as scheduler_client,
    ):
        controllers = Manager(controllers_client)
        environment = Environment(
            controllers,
            authority,
            sign_token,
            metrics=ControllerMetrics(),
            control_planes=frozenset(control_planes),
        )
        for controller in CONTROLLERS:
            controller(environment)
        scheduling = Manager(scheduler_client)
        Scheduler(scheduling)
        health = Health()
        for name, manager in (("controllers", controllers), ("scheduler", scheduling)):
            health.add_ready(name, _started_check(manager))
        async with contextlib.AsyncExitStack() as stack:
            if health_port is not None:
                await stack.enter_async_context(serve_health(health, health_port, host="127.0.0.1"))
            async with asyncio.TaskGroup() as group:
                group.create_task(controllers.run(), name="controllers")
                group.create_task(scheduling.run(), name="scheduler")


def _started_check(manager: Manager) -> Callable[[], str]:
    return lambda: "" if manager.has_started else "caches are not complete"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line: run until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="kindling controllers", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, help="file that names the server (default: kubectl's)")
    parser.add_argument("--root-ca", type=Path, help="PEM to publish (default: the kubeconfig's authority)")
    parser.add_argument("--sa-key", type=Path, help="private key (PEM) for the tokens of account secrets")
    parser.add_argument("--health-port", type=int, help="port of this machine for health and metrics")
    parser.add_argument("--log-format", choices=("json", "text"), default="json")
    options = parser.parse_args(argv)
    set_up_logging("kindling-controllers", form=options.log_format)
    config = load_kubeconfig(options.kubeconfig)
    authority = options.root_ca.read_text() if options.root_ca else None
    sign = signer(options.sa_key.read_bytes()) if options.sa_key else None
    with contextlib.suppress(asyncio.CancelledError):
        work = run(config, root_ca=authority, sign_token=sign, health_port=options.health_port)
        uvloop.run(_until_signal(work))
    return 0


async def _until_signal(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(work, name="kindling-controllers")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    await task


if __name__ == "__main__":
    raise SystemExit(main())
