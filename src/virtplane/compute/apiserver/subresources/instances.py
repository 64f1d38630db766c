"""Subresources of virtual machine instances."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import urlencode

from aiohttp import web

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.destinations import Destinations
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api import resources as kinds
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1 import subresources as bodytypes
from virtplane.api.kubevirt_v1.vm_status import VirtualMachineStatus
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.markers import ApiStruct
from virtplane.compute.apiserver.expansion import Expander
from virtplane.compute.apiserver.metrics import ApiMetrics
from virtplane.compute.apiserver.subresources import answers, objectgraph, refusals, streams, volumes
from virtplane.compute.apiserver.subresources.bodies import (
    is_dry_run,
    parse_options,
    read_options,
)
from virtplane.compute.apiserver.subresources.nodeagent import NodeAgentError, NodeAgents
from virtplane.compute.apiserver.subresources.portforward import PortForwards
from virtplane.compute.apiserver.subresources.refusals import INSTANCE, instance_conflict, instance_of
from virtplane.compute.apiserver.vnctokens.issuer import refuse_others
from virtplane.serving.gate import asker

Check = Callable[[VirtualMachineInstance], None]
SettingsSource = Callable[[], Awaitable[ClusterConfig]]


class Instances:
    """Handlers of the subresources of VirtualMachineInstances."""

    def __init__(
        self,
        client: Client,
        agents: NodeAgents,
        expander: Expander,
        settings: SettingsSource,
        metrics: ApiMetrics,
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._forwards = PortForwards(self.launchers, Destinations())
        self._agents = agents
        self.expander = expander
        self.settings = settings

    async def _instance(self, request: web.Request) -> VirtualMachineInstance:
        return instance_of(await self._document(request))

    async def _document(self, request: web.Request) -> JsonObject:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        try:
            return await self._client.get(kinds.VIRTUAL_MACHINE_INSTANCES, name, namespace)
        except StatusError as error:
            if is_not_found(error):
                raise errors.not_found(INSTANCE, name) from error
            raise

    async def launchers(self, vmi: VirtualMachineInstance) -> list[JsonObject]:
        """The launcher pods of an instance."""
        listing = await self._client.list(
            resources.PODS,
            vmi.metadata.namespace,
            label_selector=f"kubevirt.io/created-by={vmi.metadata.uid}",
        )
        return get_list(listing, "items")

    async def patch(self, vmi: VirtualMachineInstance, operations: list[JsonObject], dry_run: bool) -> None:
        """Patches an instance. Raises StatusError as users should see it."""
        try:
            await self._client.patch(
                kinds.VIRTUAL_MACHINE_INSTANCES,
                vmi.metadata.name,
                operations,
                vmi.metadata.namespace,
                type="json",
                dry_run=dry_run,
            )
        except StatusError as error:
            if error.code in (404, 409) or (error.code == 422 and error.causes):
                raise
            raise refusals.internal(error.message) from error

    async def _tell(self, vmi: VirtualMachineInstance, action: str, body: bytes = b"") -> web.Response:
        """Send a request to virt-handler."""
        try:
            reply = await self._agents.request(vmi, "PUT", action, body)
        except NodeAgentError as error:
            raise refusals.internal(str(error)) from error
        if not 200 <= reply.status < 300:
            text = reply.body.decode(errors="replace")
            status = f"{reply.status} {reply.reason}".strip()
            raise refusals.internal(f"unexpected return code {reply.status} ({status}), message: {text}")
        return web.Response(status=200)

    def _command(
        self, action: str, check: Check | None = None, *, struct: type[ApiStruct] | None = None
    ) -> _Handler:
        async def handle(request: web.Request) -> web.Response:
            body = await request.read()
            options = parse_options(body, struct) if struct is not None else {}
            vmi = await self._instance(request)
            if check is not None:
                check(vmi)
            if is_dry_run(options):
                await self._agents.base_url(vmi)
                return web.Response(status=200)
            return await self._tell(vmi, action, body)

        return handle

    async def unpause(self, request: web.Request) -> web.Response:
        """Lets a paused guest go on."""
        body = await request.read()
        options = parse_options(body, bodytypes.UnpauseOptions)
        vmi = await self._instance(request)
        try:
            vm = await self._client.get(kinds.VIRTUAL_MACHINES, vmi.metadata.name, vmi.metadata.namespace)
            machine = refusals.readable(VirtualMachineStatus, get_object(vm, "status"))
        except StatusError as error:
            if not is_not_found(error):
                raise
            machine = None
        refusals.check_unpause(vmi, machine)
        if is_dry_run(options):
            await self._agents.base_url(vmi)
            return web.Response(status=200)
        return await self._tell(vmi, "unpause", body)

    async def reset(self, request: web.Request) -> web.Response:
        """Resets the guest as its reset button would."""
        vmi = await self._instance(request)
        try:
            return await self._tell(vmi, "reset")
        except StatusError as error:
            phase = refusals.phase(vmi)
            if phase == "Running":
                raise
            text = f"Failed to reset non-running VMI with phase {phase}: {error.message}"
            raise StatusError(error.code, error.reason, text, error.details) from error

    def _question(self, action: str, check: Check) -> _Handler:
        """A request that the node agent answers with a document. All failures are plain texts with 500."""

        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                vmi = await self._instance(request)
                check(vmi)
                async with self._agents.answering(vmi, action) as answer:
                    return await answers.pass_on(request, answer)
            except StatusError as error:
                return web.Response(status=500, text=error.message)
            except NodeAgentError as error:
                return web.Response(status=500, text=str(error))

        return handle

    def _sev_question(self, action: str, check: Check) -> _Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            gate = (await self.settings()).gate("WorkloadEncryptionSEV")

            def check_all(vmi: VirtualMachineInstance) -> None:
                check(vmi)
                refusals.check_sev(vmi, gate)

            return await self._question(action, check_all)(request)

        return handle

    async def sev_setup(self, request: web.Request) -> web.Response:
        """Stores the session by which a guest's owner will recognise it."""
        options = await read_options(request, bodytypes.SEVSessionOptions)
        if not get_str(options, "session"):
            raise errors.bad_request("Session blob is required")
        if not get_str(options, "dhCert"):
            raise errors.bad_request("DH cert is required")
        document = await self._document(request)
        vmi = instance_of(document)
        if refusals.phase(vmi) != "Scheduled":
            raise instance_conflict(vmi, "VMI is not in Scheduled phase")
        refusals.check_sev(vmi, (await self.settings()).gate("WorkloadEncryptionSEV"))
        path = ("spec", "domain", "launchSecurity", "sev")
        present = get_object(document, *path)
        if present.get("session"):
            raise instance_conflict(vmi, "Session already defined")
        value = {**present, "session": options["session"], "dhCert": options["dhCert"]}
        pointer = "/" + "/".join(path)
        operations: list[JsonObject] = [
            {"op": "test", "path": pointer, "value": present},
            {"op": "replace", "path": pointer, "value": value},
        ]
        await self.patch(vmi, operations, dry_run=False)
        return web.Response(status=202)

    async def sev_inject(self, request: web.Request) -> web.Response:
        """Set the launch secret of a SEV guest after its measurement."""
        body = await request.read()
        vmi = await self._instance(request)
        refusals.require_running(vmi, "VMI is not running")
        refusals.check_sev(vmi, (await self.settings()).gate("WorkloadEncryptionSEV"))
        if not refusals.is_paused(vmi):
            raise instance_conflict(vmi, "VMI is not paused")
        return await self._tell(vmi, "sev/injectlaunchsecret", body)

    def _connection(self, action: str, check: Check, *parameters: str) -> _Handler:
        """A byte stream between the client and the guest. The way to the guest is opened first, so that
        failures are still ordinary answers."""

        async def handle(request: web.Request) -> web.StreamResponse:
            document = await self._document(request)
            await refuse_others(self._client, asker(request), document)
            vmi = instance_of(document)
            check(vmi)
            query = urlencode({key: request.query[key] for key in parameters if key in request.query})
            counted = self._metrics.connection(action, vmi.metadata.namespace, vmi.metadata.name)
            way = f"{action}?{query}" if query else action
            try:
                async with self._agents.stream(vmi, way) as upstream:
                    client = await streams.accept(request)
                    with counted:
                        await streams.splice(request, client, upstream)
                    return client
            except NodeAgentError as error:
                raise refusals.internal(str(error)) from error

        return handle

    async def port_forward(self, request: web.Request) -> web.StreamResponse:
        """Connects to a port of the guest."""
        return await self.forward(request, await self._instance(request))

    async def forward(self, request: web.Request, vmi: VirtualMachineInstance) -> web.StreamResponse:
        """Connects the client to a port of the guest, over the pod network."""
        of = vmi.metadata
        with self._metrics.connection("portforward", of.namespace, of.name):
            return await self._forwards.serve(request, vmi)

    async def add_volume(self, request: web.Request) -> web.Response:
        """Add a volume to a running instance that has no VM."""
        return await self._change_volumes(request, adds=True)

    async def remove_volume(self, request: web.Request) -> web.Response:
        """Takes a hotplugged volume away from a running instance."""
        return await self._change_volumes(request, adds=False)

    async def _change_volumes(self, request: web.Request, *, adds: bool) -> web.Response:
        struct = bodytypes.AddVolumeOptions if adds else bodytypes.RemoveVolumeOptions
        options = await read_options(request, struct)
        settings = await self.settings()
        if not settings.gate("DeclarativeHotplugVolumes") and not settings.gate("HotplugVolumes"):
            text = "Enable DeclarativeHotplugVolumes or HotplugVolumes feature gate to use this API."
            raise errors.bad_request(text)
        name = get_str(options, "name")
        checked = volumes.checked_add(options) if adds else options
        if not name:
            raise errors.bad_request("RemoveVolumeOptions requires name to be set")
        document = await self._document(request)
        vmi, owner = instance_of(document), meta.controller_of(document)
        if (
            owner is not None
            and owner.get("kind") == "VirtualMachine"
            and not settings.gate("HotplugVolumes")
        ):
            raise errors.bad_request(f"VMI {vmi.metadata.namespace}/{vmi.metadata.name} is owned by a VM")
        refusals.require_running(vmi, "VMI is not running")
        spec = get_object(document, "spec")

        def conflict(text: str) -> StatusError:
            return instance_conflict(vmi, text)

        if adds:
            operations = volumes.add_operations(spec, checked, "/spec", conflict)
        else:
            operations = volumes.remove_operations(spec, name, "/spec", conflict)
        await self.patch(vmi, operations, is_dry_run(options))
        return web.Response(status=202)

    async def object_graph(self, request: web.Request) -> web.Response:
        """The objects that the instance depends on."""
        objectgraph.require_gate((await self.settings()).gate("ObjectGraph"))
        options = await read_options(request, bodytypes.ObjectGraphOptions)
        vmi = instance_of(await self._document(request))
        pods = await self.launchers(vmi)
        return web.json_response(objectgraph.of_instance(vmi, pods, options))

    async def cancel_evacuation(self, request: web.Request) -> web.Response:
        """Takes back the mark that the instance is to leave its node."""
        return await self.cancel(request, await self._instance(request))

    async def cancel(self, request: web.Request, vmi: VirtualMachineInstance) -> web.Response:
        """Remove the evacuation mark of `vmi`. Nodes that are being drained keep it."""
        node = vmi.status.evacuation_node_name or vmi.status.node_name
        if not node:
            raise refusals.internal("resource name may not be empty")
        await self._check_drain(node)
        if not vmi.status.evacuation_node_name:
            return web.Response(status=200)
        body = await request.read()
        if not body.strip():
            raise errors.bad_request("No body")
        options = parse_options(body, bodytypes.EvacuateCancelOptions)
        path = "/status/evacuationNodeName"
        named = get_str(options, "evacuationNodeName")
        operations: list[JsonObject] = [
            {"op": "test", "path": path, "value": named},
            {"op": "remove", "path": path},
        ]
        await self.patch(vmi, operations, is_dry_run(options))
        return web.Response(status=200)

    async def _check_drain(self, node_name: str) -> None:
        key = (await self.settings()).configuration.migrations.node_drain_taint_key
        try:
            node = await self._client.get(resources.NODES, node_name)
        except StatusError as error:
            raise refusals.internal(error.message) from error
        for taint in get_list(node, "spec", "taints"):
            if key and taint.get("key") == key and taint.get("effect") == "NoSchedule":
                value = get_str(taint, "value")
                text = f"&Taint{{Key:{key},Value:{value},Effect:NoSchedule,TimeAdded:<nil>,}}"
                raise errors.bad_request(f'Node "{node_name}" has NodeDrainTaintKey "{text}"')

    def routes(self) -> list[tuple[str, str, _Handler]]:
        """Method, path below the instance, handler."""
        running = refusals.require_running
        return [
            ("PUT", "pause", self._command("pause", refusals.check_pause, struct=bodytypes.PauseOptions)),
            ("PUT", "unpause", self.unpause),
            ("PUT", "freeze", self._command("freeze", running)),
            ("PUT", "unfreeze", self._command("unfreeze", _running_instance)),
            ("PUT", "reset", self.reset),
            ("PUT", "softreboot", self._command("softreboot", refusals.check_softreboot)),
            ("PUT", "backup", self._command("backup", running)),
            ("PUT", "redefine-checkpoint", self._command("redefine-checkpoint", _tracked)),
            ("GET", "console", self._connection("console", refusals.check_console)),
            ("GET", "vnc", self._connection("vnc", refusals.check_display, "preserveSession")),
            ("GET", "vnc/screenshot", self._question("vnc/screenshot", refusals.check_display)),
            ("GET", "usbredir", self._connection("usbredir", refusals.check_usb_redirection)),
            ("GET", "vsock", self._connection("vsock", refusals.check_vsock, "port", "tls")),
            ("GET", "portforward/{port}", self.port_forward),
            ("GET", "portforward/{port}/{protocol}", self.port_forward),
            ("GET", "guestosinfo", self._question("guestosinfo", refusals.check_guest_agent)),
            ("GET", "userlist", self._question("userlist", refusals.check_guest_agent)),
            ("GET", "filesystemlist", self._question("filesystemlist", refusals.check_guest_agent)),
            ("PUT", "addvolume", self.add_volume),
            ("PUT", "removevolume", self.remove_volume),
            ("GET", "objectgraph", self.object_graph),
            ("PUT", "evacuate/cancel", self.cancel_evacuation),
            ("GET", "sev/fetchcertchain", self._sev_question("sev/fetchcertchain", refusals.check_assigned)),
            (
                "GET",
                "sev/querylaunchmeasurement",
                self._sev_question("sev/querylaunchmeasurement", _running_instance),
            ),
            ("PUT", "sev/setupsession", self.sev_setup),
            ("PUT", "sev/injectlaunchsecret", self.sev_inject),
        ]


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _running_instance(vmi: VirtualMachineInstance) -> None:
    refusals.require_running(vmi, "VMI is not running")


def _tracked(vmi: VirtualMachineInstance) -> None:
    refusals.check_changed_block_tracking(vmi)
