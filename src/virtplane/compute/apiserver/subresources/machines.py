"""Subresources of virtual machines."""

from __future__ import annotations

from aiohttp import web

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta
from virtplane.api import resources as kinds
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1 import subresources as bodytypes
from virtplane.api.kubevirt_v1 import vm_status
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.apiserver.subresources import lifecycle, memorydump, objectgraph, refusals, volumes
from virtplane.compute.apiserver.subresources.bodies import (
    is_dry_run,
    read_options,
    unreadable,
)
from virtplane.compute.apiserver.subresources.instances import Instances
from virtplane.compute.apiserver.subresources.lifecycle import Patch
from virtplane.compute.apiserver.subresources.refusals import MACHINE, instance_of, machine_conflict

_TEMPLATE = "/spec/template/spec"


class Machines:
    """Handlers of the subresources of VirtualMachines."""

    def __init__(self, client: Client, instances: Instances) -> None:
        self._client = client
        self._instances = instances

    async def _machine(self, request: web.Request) -> JsonObject:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        try:
            return await self._client.get(kinds.VIRTUAL_MACHINES, name, namespace)
        except StatusError as error:
            if is_not_found(error):
                raise errors.not_found(MACHINE, name) from error
            raise

    async def _instance(self, vm: JsonObject) -> VirtualMachineInstance | None:
        document = await self._instance_document(vm)
        return instance_of(document) if document is not None else None

    async def _instance_document(self, vm: JsonObject) -> JsonObject | None:
        try:
            return await self._client.get(kinds.VIRTUAL_MACHINE_INSTANCES, meta.name(vm), meta.namespace(vm))
        except StatusError as error:
            if is_not_found(error):
                return None
            raise

    async def _apply(self, vm: JsonObject, patch: Patch | None, dry_run: bool) -> None:
        if patch is None:
            return
        subresource = "status" if patch.target == "status" else None
        await self._patch(vm, list(patch.operations), dry_run, subresource)

    async def _patch(
        self, vm: JsonObject, operations: list[JsonObject], dry_run: bool, subresource: str | None = None
    ) -> None:
        name = meta.name(vm)
        try:
            await self._client.patch(
                kinds.VIRTUAL_MACHINES,
                name,
                operations,
                meta.namespace(vm),
                type="json",
                subresource=subresource,
                dry_run=dry_run,
            )
        except StatusError as error:
            if _is_failed_test(error):
                raise machine_conflict(name, error.message) from error
            if error.code == 404:
                raise errors.not_found(MACHINE, name) from error
            if error.code in (409, 422):
                raise
            raise refusals.internal(error.message) from error

    async def start(self, request: web.Request) -> web.Response:
        """Starts the VM."""
        options = await read_options(request, bodytypes.StartOptions)
        vm = await self._machine(request)
        patch = lifecycle.start(vm, await self._instance(vm), paused=options.get("paused") is True)
        await self._apply(vm, patch, is_dry_run(options))
        return web.Response(status=202)

    async def stop(self, request: web.Request) -> web.Response:
        """Stops the VM."""
        options = await read_options(request, bodytypes.StopOptions)
        vm = await self._machine(request)
        vmi = await self._instance(vm)
        grace = options.get("gracePeriod")
        patch = lifecycle.stop(vm, vmi, grace_seconds=grace)
        if grace is not None and vmi is not None and refusals.is_live(vmi):
            await self._instances.patch(vmi, lifecycle.grace_operations(vmi, grace), is_dry_run(options))
        await self._apply(vm, patch, is_dry_run(options))
        return web.Response(status=202)

    async def restart(self, request: web.Request) -> web.Response:
        """Stops the VM's instance and starts another."""
        options = await read_options(request, bodytypes.RestartOptions)
        grace = options.get("gracePeriodSeconds")
        lifecycle.check_restart_grace(grace)
        vm = await self._machine(request)
        vmi = await self._instance(vm)
        patch = lifecycle.restart(vm, vmi)
        dry_run = is_dry_run(options)
        if grace == 0 and vmi is not None:
            await self._instances.patch(vmi, lifecycle.grace_operations(vmi, 1), dry_run)
        await self._apply(vm, patch, dry_run)
        return web.Response(status=202)

    async def migrate(self, request: web.Request) -> web.Response:
        """Makes a migration for the VM's instance."""
        options = await read_options(request, bodytypes.MigrateOptions)
        vm = await self._machine(request)
        vmi = await self._instance(vm)
        if vmi is None:
            raise errors.not_found(refusals.INSTANCE, meta.name(vm))
        if refusals.phase(vmi) != "Running":
            raise machine_conflict(meta.name(vm), "VM is not running")
        spec: JsonObject = {"vmiName": meta.name(vm)}
        if options.get("addedNodeSelector"):
            spec["addedNodeSelector"] = options["addedNodeSelector"]
        kind = kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS
        migration = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"generateName": "kubevirt-migrate-vm-", "namespace": meta.namespace(vm)},
            "spec": spec,
        }
        try:
            await self._client.create(kind, migration, dry_run=is_dry_run(options))
        except StatusError as error:
            raise refusals.internal(error.message) from error
        return web.Response(status=202)

    async def add_volume(self, request: web.Request) -> web.Response:
        """Adds a volume to the VM."""
        options = await read_options(request, bodytypes.AddVolumeOptions)
        settings = await self._instances.settings()
        _require_hotplug(settings)
        checked = volumes.checked_add(options)
        vm = await self._machine(request)

        def conflict(text: str) -> StatusError:
            return machine_conflict(meta.name(vm), text)

        template = get_object(vm, "spec", "template", "spec")
        operations = volumes.add_operations(template, checked, _TEMPLATE, conflict)
        if settings.gate("HotplugVolumes"):
            operations = volumes.add_request(vm, checked, conflict)
            await self._patch(vm, operations, is_dry_run(options), "status")
        else:
            await self._patch(vm, operations, is_dry_run(options))
        return web.Response(status=202)

    async def remove_volume(self, request: web.Request) -> web.Response:
        """Takes a hotplugged volume away from the VM."""
        options = await read_options(request, bodytypes.RemoveVolumeOptions)
        settings = await self._instances.settings()
        _require_hotplug(settings)
        name = get_str(options, "name")
        if not name:
            raise errors.bad_request("RemoveVolumeOptions requires name to be set")
        vm = await self._machine(request)

        def conflict(text: str) -> StatusError:
            return machine_conflict(meta.name(vm), text)

        template = get_object(vm, "spec", "template", "spec")
        operations = volumes.remove_operations(template, name, _TEMPLATE, conflict)
        if settings.gate("HotplugVolumes"):
            operations = volumes.remove_request(vm, name, conflict)
            await self._patch(vm, operations, is_dry_run(options), "status")
            return web.Response(status=202)
        await self._patch(vm, operations, is_dry_run(options))
        return web.Response(status=202)

    async def memory_dump(self, request: web.Request) -> web.Response:
        """Handle a request to dump the guest's memory into a claim."""
        options = await read_options(request, vm_status.VirtualMachineMemoryDumpRequest)
        _require_hotplug(await self._instances.settings())
        vm = await self._machine(request)
        claim = memorydump.claim_to_use(vm, options)
        vmi = await self._instance(vm)
        if vmi is None:
            raise errors.not_found(refusals.INSTANCE, meta.name(vm))
        refusals.require_running(vmi, "VMI is not running")
        found = await self._client.get(resources.PERSISTENT_VOLUME_CLAIMS, claim, meta.namespace(vm))
        memorydump.check_claim(vm, vmi, found)
        await self._patch(vm, memorydump.request_operations(vm, claim), False, "status")
        return web.Response(status=202)

    async def remove_memory_dump(self, request: web.Request) -> web.Response:
        """Detaches the claim of memory dumps."""
        vm = await self._machine(request)
        await self._patch(vm, memorydump.removal_operations(vm), False, "status")
        return web.Response(status=202)

    async def expand_spec(self, request: web.Request) -> web.Response:
        """The VM with instance type and preference applied."""
        vm = await self._machine(request)
        try:
            return web.json_response(await self._instances.expander.expand(vm))
        except StatusError as error:
            raise refusals.internal(error.message) from error

    async def expand_given(self, request: web.Request) -> web.Response:
        """The VM in the body with instance type and preference applied."""
        if request.content_type != "application/json":
            return web.Response(status=415, text="415: Unsupported Media Type")
        options = await read_options(request)
        if not options:
            raise errors.bad_request("empty request body")
        problems = self._instances.expander.problems(options)
        if problems:
            causes = [{"message": text} for text in problems]
            text = "Object is not a valid VirtualMachine"
            raise StatusError(400, "BadRequest", text, {"causes": causes})
        if not isinstance(options.get("metadata") or {}, dict):
            raise unreadable("value into Go struct field VirtualMachine.metadata of type v1.ObjectMeta")
        namespace = request.match_info["namespace"]
        if meta.namespace(options) not in ("", namespace):
            raise errors.bad_request(f"VM namespace must be empty or {namespace}")
        vm = deep_copy(options)
        vm["metadata"] = {**(vm.get("metadata") or {}), "namespace": namespace}
        try:
            return web.json_response(await self._instances.expander.expand(vm))
        except StatusError as error:
            raise errors.bad_request(error.message) from error

    async def port_forward(self, request: web.Request) -> web.StreamResponse:
        """Connects to a port of the VM's guest."""
        vm = await self._machine(request)
        if get_object(vm, "status").get("created") is not True:
            raise machine_conflict(meta.name(vm), "VMI is not started")
        document = await self._instance_document(vm)
        if document is None or not meta.is_controlled_by(document, vm):
            raise refusals.internal("the VMI is not owned by the VM")
        return await self._instances.forward(request, instance_of(document))

    async def object_graph(self, request: web.Request) -> web.Response:
        """The objects that the VM depends on."""
        settings = await self._instances.settings()
        objectgraph.require_gate(settings.gate("ObjectGraph"))
        options = await read_options(request, bodytypes.ObjectGraphOptions)
        document = await self._machine(request)
        vmi = await self._instance(document)
        pods = await self._instances.launchers(vmi) if vmi is not None else []
        vm = refusals.readable(VirtualMachine, document)
        return web.json_response(objectgraph.of_machine(vm, vmi, pods, options))

    async def cancel_evacuation(self, request: web.Request) -> web.Response:
        """Takes back the mark that the VM's instance is to leave its node."""
        vm = await self._machine(request)
        vmi = await self._instance(vm)
        if vmi is None:
            raise machine_conflict(meta.name(vm), "VMI is not started")
        return await self._instances.cancel(request, vmi)


def _is_failed_test(error: StatusError) -> bool:
    return error.code == 422 and not error.causes and "admission webhook" not in error.message


def _require_hotplug(settings: ClusterConfig) -> None:
    if not settings.gate("DeclarativeHotplugVolumes") and not settings.gate("HotplugVolumes"):
        text = "Enable DeclarativeHotplugVolumes or HotplugVolumes feature gate to use this API."
        raise errors.bad_request(text)
