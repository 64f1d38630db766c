"""The process of the controllers and the scheduler: ``kindling controllers``."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

import uvloop

from kindling.controllers.accounts.cluster_roles import ClusterRoleAggregation
from kindling.controllers.accounts.root_ca import RootCaPublisher
from kindling.controllers.accounts.service_accounts import ServiceAccountController
from kindling.controllers.accounts.token_secrets import TokenSecrets, signer
from kindling.controllers.environment import Environment
from kindling.controllers.garbage_collector import GarbageCollector
from kindling.controllers.namespaces import NamespaceController
from kindling.controllers.nodes.lifecycle import NodeLifecycleController
from kindling.controllers.nodes.pod_gc import PodGarbageCollector
from kindling.controllers.nodes.roles import NodeRoles
from kindling.controllers.nodes.ttl import NodeTtl
from kindling.controllers.resource_quotas import ResourceQuotaController
from kindling.controllers.services.endpoint_mirroring import EndpointMirroring
from kindling.controllers.services.endpoint_slices import EndpointSliceController
from kindling.controllers.services.endpoints import EndpointsController
from kindling.controllers.services.load_balancers import LoadBalancers
from kindling.controllers.volumes.attachments import AttachDetachController
from kindling.controllers.volumes.ephemeral_volumes import EphemeralVolumes
from kindling.controllers.volumes.expansion import VolumeExpansion
from kindling.controllers.volumes.persistent_volumes import VolumeController
from kindling.controllers.volumes.protection import VolumeProtection
from kindling.controllers.workloads.autoscalers import AutoscalerController
from kindling.controllers.workloads.cron_jobs import CronJobController
from kindling.controllers.workloads.daemon_sets import DaemonSetController
from kindling.controllers.workloads.deployments import DeploymentController
from kindling.controllers.workloads.disruption import DisruptionController
from kindling.controllers.workloads.finished_jobs import FinishedJobs
from kindling.controllers.workloads.jobs import JobController
from kindling.controllers.workloads.replicas import replica_sets, replication_controllers
from kindling.controllers.workloads.stateful_sets import StatefulSetController
from kindling.network.external import ExternalRanges
from kindling.scheduler.loop import Scheduler
from kubecore.client import Client, ClientConfig, load_kubeconfig
from kubecore.json import JsonObject
from kubecore.runtime import Manager, set_up_logging, until_signalled

CONTROLLERS: tuple[Callable[[Environment], object], ...] = (
    ClusterRoleAggregation,
    RootCaPublisher,
    ServiceAccountController,
    TokenSecrets,
    GarbageCollector,
    NamespaceController,
    NodeLifecycleController,
    PodGarbageCollector,
    NodeRoles,
    NodeTtl,
    ResourceQuotaController,
    EndpointMirroring,
    EndpointSliceController,
    EndpointsController,
    LoadBalancers,
    AttachDetachController,
    EphemeralVolumes,
    VolumeExpansion,
    VolumeController,
    VolumeProtection,
    AutoscalerController,
    CronJobController,
    DaemonSetController,
    DeploymentController,
    DisruptionController,
    FinishedJobs,
    JobController,
    replica_sets,
    replication_controllers,
    StatefulSetController,
)
"""All controllers, in the order of their modules' names."""

CONTROLLER_USER_AGENT = "kube-controller-manager"
SCHEDULER_USER_AGENT = "kube-scheduler"


async def run(
    config: ClientConfig,
    *,
    scheduler_config: ClientConfig | None = None,
    sign_token: Callable[[JsonObject, JsonObject], str] | None = None,
    control_planes: Collection[str] = (),
    external: ExternalRanges | None = None,
) -> None:
    """Run all controllers and the scheduler against one server until cancelled.

    The scheduler uses the credentials of `scheduler_config`, by default those of `config`. `sign_token` signs
    the tokens of account secrets; `control_planes` names the nodes that get the role of the control plane.
    Load balancers get addresses of `external`.
    The certificate authority of `config` is published into namespaces.
    """
    controllers_config = replace(config, user_agent=CONTROLLER_USER_AGENT)
    scheduler_config = replace(scheduler_config or config, user_agent=SCHEDULER_USER_AGENT)
    async with (
        Client(controllers_config) as controllers_client,
        Client(scheduler_config) as scheduler_client,
    ):
        controllers = Manager(controllers_client)
        authority = (config.ca_data or b"").decode()
        environment = Environment(
            controllers,
            authority,
            sign_token,
            control_planes=frozenset(control_planes),
            external=external or ExternalRanges(),
        )
        for controller in CONTROLLERS:
            controller(environment)
        scheduling = Manager(scheduler_client)
        Scheduler(scheduling)
        async with asyncio.TaskGroup() as group:
            group.create_task(controllers.run(), name="controllers")
            group.create_task(scheduling.run(), name="scheduler")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line: run until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="kindling controllers", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, help="file that names the server (default: kubectl's)")
    parser.add_argument("--sa-key", type=Path, help="private key (PEM) for the tokens of account secrets")
    options = parser.parse_args(argv)
    set_up_logging("kindling-controllers")
    config = load_kubeconfig(options.kubeconfig)
    sign = signer(options.sa_key.read_bytes()) if options.sa_key else None
    uvloop.run(until_signalled(lambda: run(config, sign_token=sign)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
