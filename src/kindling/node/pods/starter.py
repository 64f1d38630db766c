"""Creating sandboxes and starting containers: image, configuration, devices, hooks, back-off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kindling.node.backoff import Backoff
from kindling.node.images import host_image
from kindling.node.images.manager import ImageManager, ImageProblem, Wanted, credentials_of
from kindling.node.pods import environment, identity, sandbox
from kindling.node.pods.confinement import Confinement
from kindling.node.pods.container import ContainerInputs, DeviceGrant, container_config, find_container
from kindling.node.pods.cpu_quotas import CpuQuotas
from kindling.node.pods.downward_api import NodeFacts
from kindling.node.pods.environment import ConfigProblem, EnvironmentContext, Sources
from kindling.node.pods.pod_cgroups import PodCgroups
from kindling.node.pods.runtime_status import PodRuntimeStatus, Waiting
from kindling.node.pods.security import SecurityProblem
from kindling.node.probes.handlers import Target, handler_of, perform
from kindling.node.runtime.containerd import Containerd
from kindling.node.runtime.interface import Container, ContainerState, Image, RuntimeFailure
from kindling.node.server import logs
from kindling.node.volumes.content import ContentProblem
from kindling.node.volumes.manager import Prepared, VolumeManager, VolumeProblem
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str

_RETRY_SECONDS = 5.0


class StartFailure(Exception):
    """A container could not be started; `reason` is its waiting reason."""

    def __init__(self, reason: str, message: str, retry_seconds: float, *, created: bool = False) -> None:
        super().__init__(message)
        self.reason, self.retry_seconds, self.created = reason, retry_seconds, created


@dataclass
class PodSession:
    """State of a pod that the agent keeps between syncs; losing it at a restart does no harm."""

    pod: JsonObject
    prepared: dict[str, Prepared] = field(default_factory=dict)
    waiting: dict[str, Waiting] = field(default_factory=dict)
    starting: set[str] = field(default_factory=set)
    """Ids of containers whose postStart hook runs."""
    without_image: set[str] = field(default_factory=set)
    """Names of containers that wait for an image that is one of their volumes."""

    def volume_failed(self, problem: VolumeProblem) -> None:
        """Record a volume that cannot be set up. When its image cannot be pulled, the containers that mount
        it get the waiting reason, as for their own image.
        """
        self._forget_images()
        if not problem.waiting_reason:
            return
        spec = get_object(self.pod, "spec")
        for container in [*get_list(spec, "initContainers"), *get_list(spec, "containers")]:
            if any(mount.get("name") == problem.volume for mount in get_list(container, "volumeMounts")):
                name = get_str(container, "name")
                self.without_image.add(name)
                self.waiting[name] = Waiting(problem.waiting_reason, str(problem))

    def volumes_prepared(self, prepared: dict[str, Prepared]) -> None:
        """Record that all volumes are set up."""
        self._forget_images()
        self.prepared = prepared

    def _forget_images(self) -> None:
        for name in self.without_image:
            self.waiting.pop(name, None)
        self.without_image.clear()


@dataclass
class StarterServices:
    """What starting containers needs from the rest of the node."""

    runtime: Containerd
    images: ImageManager
    volumes: VolumeManager
    record_event: Callable[[JsonObject, str, str, str, str], None]
    sources: Callable[[JsonObject], Awaitable[Sources]]
    pull_secrets: Callable[[JsonObject], Awaitable[list[JsonObject]]]
    devices: Callable[[JsonObject, JsonObject], Awaitable[DeviceGrant]]
    node: Callable[[], NodeFacts]
    resolver: sandbox.ResolverSettings
    cgroup_root: str
    node_memory_bytes: int
    host_files: host_image.HostFiles
    confinement: Confinement
    pod_cgroups: PodCgroups
    cpu_quotas: CpuQuotas
    cpus: Callable[[JsonObject, str], tuple[str, bool]]
    """The processors of a container (empty: all), and whether they are its own."""
    is_pinned: Callable[[JsonObject], bool]
    """Whether a pod has processors of its own."""
    default_environment: Mapping[str, str] = field(default_factory=dict)


class ContainerStarter:
    """Starts sandboxes and containers of all pods of a node."""

    def __init__(self, services: StarterServices) -> None:
        self._services = services
        self._backoff = Backoff()

    def forget(self, uid: str) -> None:
        """Forget a deleted pod."""
        self._backoff.forget_prefix(uid)
        self._services.confinement.forget(uid)
        self._services.images.forget(uid)

    async def create_sandbox(self, session: PodSession, attempt: int) -> str:
        """Run a new sandbox in the pod's cgroup. Raises RuntimeFailure, OSError."""
        services = self._services
        pinned = services.is_pinned(session.pod)
        await services.pod_cgroups.ensure(session.pod, with_quota=not pinned)
        config = sandbox.sandbox_config(session.pod, attempt, services.resolver, services.cgroup_root)
        identity.log_directory(session.pod).mkdir(parents=True, exist_ok=True, mode=0o755)
        return await services.runtime.run_sandbox(config)

    async def start(self, session: PodSession, observed: PodRuntimeStatus, name: str) -> None:
        """Start container `name` in the newest sandbox. Raises StartFailure or RuntimeFailure."""
        pod, current = session.pod, observed.sandbox
        if current is None:
            raise RuntimeFailure(f"no sandbox for container {name}", "FAILED_PRECONDITION")
        container = find_container(pod, name)
        previous = observed.newest(name)
        self._check_backoff(pod, name, previous)
        await self._services.confinement.secure(pod, current.id)
        image = await self._image(pod, container)
        values = await self._configure(session, container, image, observed)
        sandbox_config = sandbox.sandbox_config(
            pod, current.attempt, self._services.resolver, self._services.cgroup_root
        )
        container_id = await self._create(pod, current.id, name, values, sandbox_config)
        await self._launch(pod, container_id, name)
        await self._services.cpu_quotas.hold(pod, container, container_id)
        session.waiting.pop(name, None)
        _link_log(pod, name, values["log_path"], container_id)
        await self._after_start(session, container, container_id, current.ips)
        for old in observed.containers.get(name, ())[1:]:
            await self._services.runtime.remove_container(old.id)
            if old.log_path:
                logs.remove(Path(old.log_path))

    def _check_backoff(self, pod: JsonObject, name: str, previous: Container | None) -> None:
        if previous is None or previous.state is not ContainerState.EXITED:
            return
        # Another definition, for example of an image that exists, starts without delay.
        definition = identity.container_hash(find_container(pod, name))
        key, now = f"{get_str(pod, 'metadata', 'uid')}/{name}/{definition}", time.time()
        left = self._backoff.remaining(key, now, previous.finished_at / 1e9)
        if left > 0:
            shown = identity.display_name(pod)
            delay = _go_duration(self._backoff.delay(key))
            text = f"Back-off restarting failed container {name} in pod {shown}"
            self._services.record_event(pod, "Warning", "BackOff", text, name)
            message = f"back-off {delay} restarting failed container={name} pod={shown}"
            raise StartFailure("CrashLoopBackOff", message, left)
        self._backoff.failed(key, now)

    async def _image(self, pod: JsonObject, container: JsonObject) -> Image:
        name = get_str(container, "name")
        try:
            secrets = await self._services.pull_secrets(pod)
        except ContentProblem as problem:
            raise StartFailure("ErrImagePull", str(problem), _RETRY_SECONDS) from problem
        credentials = [login for secret in secrets for login in credentials_of(secret)]

        def record_event(kind: str, reason: str, message: str) -> None:
            self._services.record_event(pod, kind, reason, message, name)

        wanted = Wanted(
            get_str(pod, "metadata", "uid"),
            get_str(container, "image"),
            get_str(container, "imagePullPolicy", default="IfNotPresent"),
        )
        try:
            return await self._services.images.ensure(wanted, record_event, credentials)
        except ImageProblem as problem:
            record_event("Warning", "Failed", f"Error: {problem.reason}")
            raise StartFailure(problem.reason, str(problem), _RETRY_SECONDS) from problem

    async def _configure(
        self,
        session: PodSession,
        container: JsonObject,
        image: Image,
        observed: PodRuntimeStatus,
    ) -> dict[str, Any]:
        pod, services, name = session.pod, self._services, get_str(container, "name")
        ips, previous = observed.ips, observed.newest(name)
        attempt = 0
        if previous is not None:
            attempt = int(previous.annotations.get(identity.ANNOTATION_RESTARTS, previous.attempt)) + 1
        try:
            context = EnvironmentContext(
                pod, services.node(), await services.sources(pod), ips or services.node().ips
            )
            values = environment.build_environment(container, context)
            mounts, block = await services.volumes.container_mounts(pod, container, session.prepared, values)
            taken = {mount["container_path"] for mount in mounts}
            if "/etc/hosts" not in taken:
                mounts.append(self._hosts(pod, ips))
            if host_image.is_host_image(get_str(container, "image")):
                mounts = await asyncio.to_thread(services.host_files.mounts, taken) + mounts
            grant = await services.devices(pod, container)
            inputs = ContainerInputs(
                context=context,
                image=image,
                attempt=attempt,
                mounts=mounts,
                block_devices=block,
                grant=grant,
                termination_file=_termination_file(pod, name, attempt),
                node_memory_bytes=services.node_memory_bytes,
                default_environment=services.default_environment,
                cpus=services.cpus(pod, name)[0],
                target=_target(container, observed),
            )
            (identity.log_directory(pod) / name).mkdir(parents=True, exist_ok=True, mode=0o755)
            return container_config(pod, container, inputs)
        except (ConfigProblem, SecurityProblem, ContentProblem) as problem:
            services.record_event(pod, "Warning", "Failed", f"Error: {problem}", name)
            raise StartFailure("CreateContainerConfigError", str(problem), _RETRY_SECONDS) from problem

    def _hosts(self, pod: JsonObject, ips: tuple[str, ...]) -> dict[str, Any]:
        path = identity.pod_directory(get_str(pod, "metadata", "uid")) / "etc-hosts"
        node_hosts = Path("/etc/hosts").read_text() if get_bool(pod, "spec", "hostNetwork") else ""
        path.write_text(sandbox.hosts_file(pod, ips, self._services.resolver, node_hosts))
        path.chmod(0o644)
        return {"container_path": "/etc/hosts", "host_path": str(path), "propagation": 0}

    async def _create(
        self,
        pod: JsonObject,
        sandbox_id: str,
        name: str,
        config: Mapping[str, Any],
        sandbox_config: Mapping[str, Any],
    ) -> str:
        try:
            container_id = await self._services.runtime.create_container(sandbox_id, config, sandbox_config)
        except RuntimeFailure as error:
            if error.code == "UNAVAILABLE":
                raise
            self._services.record_event(pod, "Warning", "Failed", f"Error: {error}", name)
            raise StartFailure("CreateContainerError", str(error), _RETRY_SECONDS) from error
        self._services.record_event(pod, "Normal", "Created", "Container created", name)
        return container_id

    async def _launch(self, pod: JsonObject, container_id: str, name: str) -> None:
        try:
            await self._services.runtime.start_container(container_id)
        except RuntimeFailure as error:
            if error.code == "UNAVAILABLE":
                raise
            self._services.record_event(pod, "Warning", "Failed", f"Error: {error}", name)
            raise StartFailure("RunContainerError", str(error), _RETRY_SECONDS, created=True) from error
        self._services.record_event(pod, "Normal", "Started", "Container started", name)

    async def _after_start(
        self, session: PodSession, container: JsonObject, container_id: str, ips: tuple[str, ...]
    ) -> None:
        """Run the postStart hook; kill the container when the hook fails."""
        hook = handler_of(container, "lifecycle", "postStart")
        if hook is None:
            return
        session.starting.add(container_id)
        try:
            target = Target(container_id, container, (ips or self._services.node().ips or ("",))[0])
            outcome = await perform(self._services.runtime, hook, target, 0 if "exec" in hook else 3600)
            if not outcome.success:
                name = get_str(container, "name")
                text = f"PostStartHook failed: {outcome.output}"
                self._services.record_event(session.pod, "Warning", "FailedPostStartHook", text, name)
                await self._services.runtime.stop_container(container_id, 2)
                raise StartFailure("PostStartHookError", outcome.output, _RETRY_SECONDS, created=True)
        finally:
            session.starting.discard(container_id)


def _target(container: JsonObject, observed: PodRuntimeStatus) -> str:
    """The id of the running container that an ephemeral container targets. Raises ConfigProblem."""
    name = get_str(container, "targetContainerName")
    found = observed.current(name) if name else None
    if name and (found is None or found.state is not ContainerState.RUNNING):
        raise ConfigProblem(f"unable to find target container {name}")
    return found.id if found is not None else ""


def _termination_file(pod: JsonObject, name: str, attempt: int) -> Path:
    directory = identity.pod_directory(get_str(pod, "metadata", "uid")) / "containers" / name
    directory.mkdir(parents=True, exist_ok=True, mode=0o750)
    path = directory / f"{attempt:08x}"
    path.write_bytes(b"")
    # The termination file: containers of any user may write to it.
    path.chmod(0o666)
    return path


def _link_log(pod: JsonObject, name: str, log_path: str, container_id: str) -> None:
    target = identity.log_directory(pod) / log_path
    link = identity.container_log_link(pod, name, container_id)
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _go_duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
