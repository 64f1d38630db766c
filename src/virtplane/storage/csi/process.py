"""The parts of one process: one connection to the driver, one identity in the cluster."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import socket
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from kubecore.client import Client
from kubecore.runtime import CannotRun, EventRecorder, Health, LeaderElector, Manager
from kubecore.runtime.health import serve_health
from virtplane.api import storage_labels as names
from virtplane.storage.csi import capacity as capacities
from virtplane.storage.csi import options as flags
from virtplane.storage.csi.attacher import Attacher, TrivialAttacher
from virtplane.storage.csi.capacity import CapacityOptions, CapacityPublisher
from virtplane.storage.csi.deletion import Deletion
from virtplane.storage.csi.driver import (
    CallError,
    Driver,
    Identity,
    SocketDriver,
    UnfitDriver,
    node_capabilities,
)
from virtplane.storage.csi.group_snapshotter import GroupSnapshotter
from virtplane.storage.csi.liveness import serve_liveness
from virtplane.storage.csi.options import Options
from virtplane.storage.csi.parts import Environment
from virtplane.storage.csi.placement import Placement
from virtplane.storage.csi.preparation import ProvisionerOptions
from virtplane.storage.csi.protection import CloningProtection, sweep_snapshots
from virtplane.storage.csi.provisioner import Provisioner
from virtplane.storage.csi.registrar import Registrar
from virtplane.storage.csi.requests import Naming, has_topology
from virtplane.storage.csi.resizer import Resizer
from virtplane.storage.csi.snapshotter import Snapshotter

logger = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]

_MEET_SECONDS = 10.0
_LEASES = {
    flags.PROVISIONER: "{}",
    flags.ATTACHER: "external-attacher-leader-{}",
    flags.RESIZER: "external-resizer-{}",
    flags.SNAPSHOTTER: "external-snapshotter-leader-{}",
}
"""The sidecars' own names, so that one of them and this program never lead together."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the process is told about itself by its pod's environment variables."""

    namespace: str
    pod: str
    node: str
    identity: str

    @classmethod
    def of_environment(cls) -> Surroundings:
        """NAMESPACE (or POD_NAMESPACE), POD_NAME and NODE_NAME."""
        pod = os.environ.get("POD_NAME", "")
        return cls(
            namespace=os.environ.get("NAMESPACE") or os.environ.get("POD_NAMESPACE") or "default",
            pod=pod,
            node=os.environ.get("NODE_NAME", ""),
            identity=pod or socket.gethostname(),
        )


class Process:
    """Runs the parts that `options` name."""

    def __init__(self, options: Options, surroundings: Surroundings, client: Client | None) -> None:
        """`client` may be None where no part speaks with the API server."""
        self._options = options
        self._about = surroundings
        self._client = client

    async def run(self) -> None:
        """Run until cancelled. Raises CannotRun, and whatever ends a part."""
        for each in self._options.without_effect:
            logger.warning("%s is accepted but has no effect here", each)
        driver = SocketDriver(self._options.any("csi-address"))
        async with AsyncExitStack() as stack:
            stack.push_async_callback(driver.close)
            if flags.LIVENESS in self._options.parts:
                # Before the driver is met: it must be known as unhealthy also when it never starts.
                await stack.enter_async_context(self._liveness(driver))
            await self._serve_health(stack)
            await driver.wait_ready()
            try:
                identity = await driver.meet(_MEET_SECONDS)
            except (CallError, UnfitDriver) as error:
                raise CannotRun(f"the CSI driver does not say who it is: {error}") from error
            logger.info("CSI driver %s: running %s", identity.name, ", ".join(self._options.parts))
            await self._run_parts(stack, driver)

    def _liveness(self, driver: Driver) -> AbstractAsyncContextManager[int]:
        host, port = "", self._options.of(flags.LIVENESS, "health-port")
        if self._options.parts == (flags.LIVENESS,) and self._options.any("http-endpoint"):
            host, port = self._options.any("http-endpoint")
        seconds = self._options.of(flags.LIVENESS, "probe-timeout")
        return serve_liveness(driver, host, port, seconds)

    async def _serve_health(self, stack: AsyncExitStack) -> None:
        endpoint = self._options.any("http-endpoint")
        if endpoint and self._options.parts != (flags.LIVENESS,):
            host, port = endpoint
            await stack.enter_async_context(serve_health(Health(), port, host=host))

    async def _run_parts(self, stack: AsyncExitStack, driver: SocketDriver) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(driver), name="csi-driver")
            if flags.REGISTRAR in self._options.parts:
                registrar = Registrar(
                    driver.identity.name,
                    self._options.any("kubelet-registration-path"),
                    Path(self._options.any("plugin-registration-path")),
                )
                group.create_task(registrar.run(), name="csi-registrar")
            if self._client is not None:
                for name, work in await self.works(stack, driver, self._client):
                    group.create_task(work(), name=name)

    async def _watch(self, driver: SocketDriver) -> None:
        await driver.watch(_MEET_SECONDS)
        raise CannotRun("another CSI driver answers under the address: this process must begin anew")

    async def works(self, stack: AsyncExitStack, driver: Driver, client: Client) -> list[tuple[str, Work]]:
        """What to run for the parts that speak with the API server.

        Parts share their caches, unless each has a leader of its own. The snapshotter has its own always: the
        others must not wait for a snapshot API that is not there. Where every node has this process, it works
        for its node, and what belongs to no node is for one of them. Raises CannotRun.
        """
        found: list[tuple[str, Work]] = []
        shared = Manager(client)
        is_on_every_node = self._options.any("node-deployment")
        elects = self._options.any("leader-election")
        has_shared = False
        for part in flags.CONTROLLERS:
            if part not in self._options.parts:
                continue
            if elects or (is_on_every_node and part in (flags.ATTACHER, flags.RESIZER)):
                found.append(await self._elected(stack, part, driver, client))
                continue
            if part != flags.SNAPSHOTTER:
                await self._add(stack, part, driver, shared)
                has_shared = True
                continue
            found.append((f"csi-{part}", await self._alone(stack, part, driver, client)))
            if is_on_every_node:
                found.append(await self._elected(stack, part, driver, client))
        if has_shared:
            found.append(("csi-controllers", shared.run))
        return found

    async def _elected(
        self, stack: AsyncExitStack, part: str, driver: Driver, client: Client
    ) -> tuple[str, Work]:
        """The work of a part that one process of all does at a time."""
        work = await self._alone(stack, part, driver, client, elected=True)
        return f"csi-{part}-elected", partial(self._elector(part, driver, client).run, work)

    async def _alone(
        self, stack: AsyncExitStack, part: str, driver: Driver, client: Client, *, elected: bool = False
    ) -> Work:
        """The work of a part with caches of its own; groups have theirs, as their API may not be there."""
        manager = Manager(client)
        await self._add(stack, part, driver, manager, elected=elected)
        if part != flags.SNAPSHOTTER or not self._options.gate(part, "CSIVolumeGroupSnapshot"):
            return manager.run
        if not driver.identity.takes_groups:
            logger.warning("CSI driver %s takes no snapshots of groups of volumes", driver.identity.name)
            return manager.run
        groups = Manager(client)
        env = await self._environment(stack, part, driver, groups)
        option = partial(self._options.of, part)
        GroupSnapshotter(
            env,
            Naming(option("groupsnapshot-name-prefix"), option("groupsnapshot-name-uuid-length")),
            extra_metadata=option("extra-create-metadata"),
            selector=self._contents(elected=elected) if option("node-deployment") else "",
        )
        return partial(_run_together, manager, groups)

    def _elector(self, part: str, driver: Driver, client: Client) -> LeaderElector:
        option = self._options.any
        return LeaderElector(
            client,
            _LEASES[part].format(_lease_part(driver.identity.name)),
            option("leader-election-namespace") or self._about.namespace,
            self._about.identity,
            lease_seconds=option("leader-election-lease-duration"),
            renew_deadline_seconds=option("leader-election-renew-deadline"),
            retry_seconds=option("leader-election-retry-period"),
        )

    async def _add(
        self, stack: AsyncExitStack, part: str, driver: Driver, manager: Manager, *, elected: bool = False
    ) -> None:
        env = await self._environment(stack, part, driver, manager)
        if part == flags.SNAPSHOTTER:
            await self._add_snapshotter(env, elected=elected)
            return
        await {
            flags.PROVISIONER: self._add_provisioner,
            flags.ATTACHER: self._add_attacher,
            flags.RESIZER: self._add_resizer,
        }[part](env)

    async def _environment(
        self, stack: AsyncExitStack, part: str, driver: Driver, manager: Manager
    ) -> Environment:
        option = partial(self._options.of, part)
        component = {
            flags.PROVISIONER: f"{driver.identity.name}_{self._about.identity}",
            flags.RESIZER: f"external-resizer {driver.identity.name}",
            flags.SNAPSHOTTER: f"csi-snapshotter {driver.identity.name}",
        }.get(part, f"external-attacher {driver.identity.name}")
        recorder = EventRecorder(manager.client, component)
        return Environment(
            manager.client,
            manager,
            await stack.enter_async_context(recorder),
            driver,
            timeout_seconds=option("timeout"),
            retry_start_seconds=option("retry-interval-start"),
            retry_most_seconds=option("retry-interval-max"),
            workers=max(1, option("workers" if part == flags.RESIZER else "worker-threads")),
        )

    async def _add_provisioner(self, env: Environment) -> None:
        option = partial(self._options.of, flags.PROVISIONER)
        if not self._options.gate(flags.PROVISIONER, "Topology"):
            env = replace(env, driver=_WithoutTopology(env.driver))
        topology, placement = None, None
        node = self._about.node
        if option("node-deployment"):
            topology = await self._node_topology(env)
            placement = Placement(
                env,
                node,
                topology,
                immediate=option("node-deployment-immediate-binding"),
                base_delay_seconds=option("node-deployment-base-delay"),
                most_delay_seconds=option("node-deployment-max-delay"),
            )
        moment = f"{time.time_ns() // 10**6}-{random.randrange(10000)}-{env.identity.name}"
        provisioner_options = ProvisionerOptions(
            provisioner_id=f"{moment}-{node}" if placement is not None else moment,
            naming=Naming(option("volume-name-prefix"), option("volume-name-uuid-length")),
            default_fs_type=option("default-fstype"),
            extra_metadata=option("extra-create-metadata"),
            strict_topology=option("strict-topology"),
            immediate_topology=option("immediate-topology"),
            read_only_many=option("controller-publish-readonly"),
            keeps_mode=option("prevent-volume-mode-conversion"),
            across_namespaces=self._options.gate(flags.PROVISIONER, "CrossNamespaceVolumeDataSource"),
        )
        Provisioner(env, provisioner_options, placement)
        Deletion(env, topology)
        if "CLONE_VOLUME" in env.identity.controller:
            CloningProtection(env)
        seconds = option("snapshot-orphan-sweep-interval")
        if seconds and "CREATE_DELETE_SNAPSHOT" in env.identity.controller:
            env.manager.add_runnable("csi-restored-snapshots", partial(sweep_snapshots, env, seconds))
        if option("enable-capacity"):
            await self._add_capacity(env, topology)

    async def _node_topology(self, env: Environment) -> dict[str, str]:
        if not self._about.node:
            raise CannotRun("--node-deployment needs the environment variable NODE_NAME")
        try:
            answer = await env.driver.call("Node", "NodeGetInfo", {}, env.timeout_seconds)
        except CallError as error:
            raise CannotRun(f"the CSI driver says nothing about its node: {error}") from error
        return dict(answer.accessible_topology.segments)

    async def _add_capacity(self, env: Environment, topology: dict[str, str] | None) -> None:
        option, about = partial(self._options.of, flags.PROVISIONER), self._about
        if "GET_CAPACITY" not in env.identity.controller:
            raise CannotRun("--enable-capacity needs a CSI driver with the capability GET_CAPACITY")
        level = option("capacity-ownerref-level")
        if level >= 0 and not about.pod:
            raise CannotRun(
                "the owner of CSIStorageCapacity objects is found by the environment variables POD_NAME and"
                " NAMESPACE: set them, or --capacity-ownerref-level=-1"
            )
        try:
            owner = await capacities.owner_at(env, about.namespace, about.pod, level)
        except ValueError as error:
            raise CannotRun(f"--capacity-ownerref-level={level}: {error}") from error
        CapacityPublisher(
            env,
            CapacityOptions(
                namespace=about.namespace,
                owner=owner,
                node_name=about.node if option("node-deployment") else "",
                node_topology=topology if has_topology(env.identity) else None,
                poll_seconds=option("capacity-poll-interval"),
                immediate=option("capacity-for-immediate-binding"),
            ),
        )

    async def _add_attacher(self, env: Environment) -> None:
        option = partial(self._options.of, flags.ATTACHER)
        if "PUBLISH_UNPUBLISH_VOLUME" not in env.identity.controller:
            TrivialAttacher(env)
            return
        Attacher(
            env,
            default_fs_type=option("default-fstype"),
            compare_seconds=option("reconcile-sync"),
            max_entries=option("max-entries"),
        )

    async def _add_resizer(self, env: Environment) -> None:
        identity = env.identity
        if "CONTROLLER_SERVICE" not in identity.plugin:
            raise CannotRun("CSI driver does not support controller service")
        grows = "EXPAND_VOLUME" in identity.controller
        if not grows and not await self._nodes_grow(env):
            raise CannotRun("CSI driver neither supports controller resize nor node resize")
        heeds = self._options.of(flags.RESIZER, "handle-volume-inuse-error")
        Resizer(env, driver_grows=grows, heeds_use=heeds)

    async def _nodes_grow(self, env: Environment) -> bool:
        try:
            return "EXPAND_VOLUME" in await node_capabilities(env.driver, env.timeout_seconds)
        except CallError as error:
            raise CannotRun(f"the CSI driver does not say what it can do on nodes: {error}") from error

    async def _add_snapshotter(self, env: Environment, *, elected: bool) -> None:
        option = partial(self._options.of, flags.SNAPSHOTTER)
        if "CREATE_DELETE_SNAPSHOT" not in env.identity.controller:
            raise CannotRun(f"CSI driver {env.identity.name} does not support ControllerCreateSnapshot")
        if option("node-deployment") and not self._about.node:
            raise CannotRun("--node-deployment needs the environment variable NODE_NAME")
        Snapshotter(
            env,
            Naming(option("snapshot-name-prefix"), option("snapshot-name-uuid-length")),
            extra_metadata=option("extra-create-metadata"),
            selector=self._contents(elected=elected) if option("node-deployment") else "",
        )

    def _contents(self, *, elected: bool) -> str:
        """Which contents this node's snapshotter is for, and which the elected one: those of no node."""
        managed = names.SNAPSHOT_MANAGED_BY
        return f"!{managed}" if elected else f"{managed}={self._about.node}"


class _WithoutTopology:
    """A driver whose volumes count as the same from everywhere (the feature gate Topology is off)."""

    def __init__(self, driver: Driver) -> None:
        self.call = driver.call
        self._driver = driver

    @property
    def identity(self) -> Identity:
        """Who the driver is, without the capability."""
        found = self._driver.identity
        return replace(found, plugin=found.plugin - {"VOLUME_ACCESSIBILITY_CONSTRAINTS"})


async def _run_together(*managers: Manager) -> None:
    async with asyncio.TaskGroup() as group:
        for manager in managers:
            group.create_task(manager.run())


def _lease_part(driver: str) -> str:
    """A driver's name as a part of a lease's."""
    return re.sub(r"[^a-z0-9-.]", "-", driver.lower()).strip("-.")
