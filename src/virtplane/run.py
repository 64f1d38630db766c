"""``virtplane run``: one or several components in one process.

Each component acts under its own identity. The process's own credentials (the pod's service account, or a
kubeconfig) are used as they are by the first component named, and impersonate the service accounts of the
others; so a compact process has no more rights under a component's name than that component.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from prometheus_client import REGISTRY

from kubecore.client import Client, ClientConfig
from kubecore.client.config import Impersonation, in_cluster, is_in_cluster
from kubecore.client.counting import CountingTransport
from kubecore.client.http import HttpTransport
from kubecore.client.kubeconfig import load_kubeconfig
from kubecore.client.limits import LimitedTransport, RequestLimit
from kubecore.client.transport import Transport
from kubecore.logs import LOG_LEVELS, LogLevels, set_up_logging
from kubecore.process_name import name_process
from kubecore.runtime.access import TokenAccess
from kubecore.runtime.component import Component, Context, run_components
from kubecore.runtime.health import Guarded, serve_health
from kubecore.runtime.queuemetrics import QueueMetrics
from kubecore.self_signed import self_signed_tls
from virtplane import profiling
from virtplane.api import account_names, ports
from virtplane.api.config import READERS_LIMIT, readers_client
from virtplane.api.paths import KUBELET_ROOT
from virtplane.api.verbosity import DEBUG_VERBOSITY, TRACE_VERBOSITY, log_level
from virtplane.components import BORROWED_ACCOUNTS, COMPONENTS, load_component
from virtplane.process import run_until_stopped
from virtplane.profiling import Profiling
from virtplane.reloading import CONFIGURED, Reloader, component_of, request_limits
from virtplane.serving.tls import SERVERS_TLS, ServersTLS
from virtplane.states import RequestCounts, add_readiness

logger = logging.getLogger(__name__)

OPERATOR = "virt-operator"
GUESTS_NODE = "virt-handler"
"""Its metrics are asked of guests' libvirt daemons, which takes its time."""

HEALTH_PORTS = dict.fromkeys(("virt-controller", "virt-handler"), ports.COMPONENT_HEALTH)
"""Where a process serves health and metrics by default, by its first component."""
DEFAULT_HEALTH_PORT = ports.HEALTH


@dataclass(frozen=True, slots=True)
class Options:
    """The components to run in this process, and their options."""

    components: tuple[str, ...]
    namespace: str
    layout: str
    image: str
    kubelet_root: str
    node_name: str
    identity: str
    kubeconfig: str
    impersonate_first: bool
    health_port: int
    require_webhook_certificate: bool = False
    verbosity: int = 1


def parse(argv: Sequence[str]) -> Options:
    """Read the command line; exits with status 2 where it makes no sense."""
    parser = argparse.ArgumentParser(prog="virtplane run", description="Run components until stopped.")
    parser.add_argument("components", help="names, separated by commas: " + ", ".join(sorted(COMPONENTS)))
    parser.add_argument("--namespace", default=os.environ.get("VIRTPLANE_NAMESPACE", "kubevirt"))
    parser.add_argument(
        "--layout",
        choices=("compact", "distributed"),
        default=os.environ.get("VIRTPLANE_LAYOUT", "distributed"),
        help="compact: the operator's process is the control plane; distributed: a Deployment for each",
    )
    parser.add_argument("--image", default=os.environ.get("VIRTPLANE_IMAGE", ""), help="image of components")
    parser.add_argument("--kubelet-root", default=KUBELET_ROOT, help="the kubelets' --root-dir")
    parser.add_argument("--node-name", default=os.environ.get("NODE_NAME", ""))
    parser.add_argument("--identity", default=os.environ.get("POD_NAME", "") or socket.gethostname())
    parser.add_argument("--kubeconfig", default="", help="credentials, where there is no service account")
    parser.add_argument(
        "--impersonate",
        action="store_true",
        help="act as the first component's service account too (for credentials of an administrator)",
    )
    parser.add_argument(
        "--require-webhook-certificate",
        action="store_true",
        help="webhooks answer the API server alone, which shows them its front proxy's certificate",
    )
    parser.add_argument(
        "--verbosity",
        type=int,
        default=1,
        help=f"{DEBUG_VERBOSITY} and more: debugging messages are logged too; {TRACE_VERBOSITY} and more:"
        " requests too. What the KubeVirt object says of its components counts more",
    )
    parser.add_argument(
        "--health-port", type=int, default=-1, help="health and metrics; 0 for any, -1 default"
    )
    given = parser.parse_args(argv)
    components = tuple(name.strip() for name in given.components.split(",") if name.strip())
    unknown = [name for name in components if name not in COMPONENTS]
    if unknown or not components:
        parser.error(f"no such component: {', '.join(unknown) or '(none given)'}")
    port = given.health_port
    if port < 0:
        port = HEALTH_PORTS.get(components[0], DEFAULT_HEALTH_PORT)
    return Options(
        components=components,
        namespace=given.namespace,
        layout=given.layout,
        image=given.image,
        kubelet_root=given.kubelet_root,
        node_name=given.node_name,
        identity=given.identity,
        kubeconfig=given.kubeconfig,
        impersonate_first=given.impersonate,
        health_port=port,
        require_webhook_certificate=given.require_webhook_certificate,
        verbosity=given.verbosity,
    )


def client_factory(
    options: Options,
    base: ClientConfig,
    limits: Mapping[str, RequestLimit],
    counts: RequestCounts | None = None,
) -> Callable[[str], Client]:
    """Gives each component a client under its own service account; `limits` are by the clients' names."""

    def client(name: str) -> Client:
        component = component_of(name)
        config = replace(base, user_agent=component, field_manager=component)
        is_first = component == options.components[0]
        if component in BORROWED_ACCOUNTS:
            user = f"system:serviceaccount:{options.namespace}:{BORROWED_ACCOUNTS[component]}"
            config = replace(config, impersonate=Impersonation(user=user))
        elif component in COMPONENTS and (options.impersonate_first or not is_first):
            account = COMPONENTS[component].service_account
            user = f"system:serviceaccount:{options.namespace}:{account}"
            extra: dict[str, tuple[str, ...]] = {}
            if options.node_name:
                extra = {"authentication.kubernetes.io/node-name": (options.node_name,)}
            config = replace(config, impersonate=Impersonation(user=user, extra=extra))
        transport: Transport = HttpTransport(config)
        if counts is not None:
            transport = CountingTransport(transport, counts.of(config.server), counts.took(config.server))
        if name in limits:
            waited = counts.waited(config.server) if counts is not None else None
            transport = LimitedTransport(transport, limits[name], waited)
        return Client(config, transport)

    return client


def readers_limits(options: Options) -> dict[str, RequestLimit]:
    """The limits of the clients that ask who reads the metrics of components, by the clients' names."""
    limit = READERS_LIMIT
    return {readers_client(name): RequestLimit(limit.qps, limit.burst) for name in options.components}


def base_config(options: Options) -> ClientConfig:
    """The credentials of this process. Raises ConfigError if there are none."""
    if options.kubeconfig or not is_in_cluster():
        return load_kubeconfig(options.kubeconfig or None)
    return in_cluster()


class Gated:
    """A component that starts once the operator in the same process has created the objects that it needs."""

    def __init__(self, component: Component, gate: asyncio.Event) -> None:
        self.name = component.name
        self._component = component
        self._gate = gate

    async def run(self, context: Context) -> None:
        """Wait for the gate, then run the component."""
        await self._gate.wait()
        await self._component.run(context)


async def run(options: Options, levels: LogLevels) -> None:
    """Run until cancelled, or until a component fails. `levels` are those of this process's log."""
    gate = asyncio.Event()
    components: list[Component] = [load_component(name) for name in options.components]
    if options.components[0] == OPERATOR:
        components[1:] = [Gated(component, gate) for component in components[1:]]
    configured = [name for name in options.components if name in CONFIGURED]
    limits, servers_tls, profiler = request_limits(configured), ServersTLS(), Profiling()
    if configured:
        components.append(Reloader(configured, levels, limits, servers_tls, profiler))
    counts = RequestCounts(REGISTRY)
    context = Context(
        client_factory=client_factory(
            options, base_config(options), {**limits, **readers_limits(options)}, counts
        ),
        queues=QueueMetrics(REGISTRY, "kubevirt_workqueue"),
        namespace=options.namespace,
        identity=options.identity,
        node_name=options.node_name,
        settings={
            "layout": options.layout,
            "image": options.image,
            "kubelet_root": options.kubelet_root,
            "components": options.components,
            "require_webhook_certificate": options.require_webhook_certificate,
            "verbosity": options.verbosity,
            "components_may_start": gate,
            SERVERS_TLS: servers_tls,
            LOG_LEVELS: levels,
        },
    )
    add_readiness(context.registry, options.components, context.health)
    reading = context.client(readers_client(options.components[0]))
    access = TokenAccess(reading)
    tls = self_signed_tls("virtplane")
    servers_tls.restrict(tls)
    async with serve_health(
        context.health,
        options.health_port,
        tls=tls,
        metrics_access=access.status,
        metrics_wait=GUESTS_NODE in options.components,
        more=_profiling(profiler, reading, options) if configured else None,
    ) as port:
        logger.info("running %s; health and metrics on port %d", ", ".join(options.components), port)
        await run_components(components, context)


def _profiling(profiler: Profiling, client: Client, options: Options) -> Guarded:
    """Lets virt-api, and nobody else, have this process profiled."""
    user = f"system:serviceaccount:{options.namespace}:{account_names.VIRT_API}"
    access = TokenAccess(client, user=user, audience=profiling.AUDIENCE)
    paths = (profiling.START, profiling.STOP, profiling.DUMP)
    return Guarded(paths, profiler.answer, access.status)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``virtplane run``; gives the exit status."""
    options = parse(sys.argv[1:] if argv is None else argv)
    name_process(options.components[0])
    levels = set_up_logging(options.components[0], level=log_level(options.verbosity))
    return run_until_stopped(run(options, levels))
