"""The controller's cache of instances lags behind that of machines, in which users' requests show."""

from __future__ import annotations

from typing import Any

from tests.support.controllers import running_controllers, until

from kubecore.json import JsonObject, deep_copy, get_list, get_object
from kubecore.objects import meta
from kubecore.resources import PODS, ResourceType
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.compute.launcherpod.inputs import Images

_KINDS = [value for value in vars(kinds).values() if isinstance(value, ResourceType)]
_VMS, _VMIS = kinds.VIRTUAL_MACHINES, kinds.VIRTUAL_MACHINE_INSTANCES
_START = {"action": "Start"}


class _LateApi(MemoryApi):
    """Keeps what happens to instances from its watchers until it is released."""

    def __init__(self) -> None:
        super().__init__(_KINDS, whole=[_VMIS])
        self._held: list[Any] | None = None

    def hold(self) -> None:
        self._held = []

    def release(self) -> None:
        held, self._held = self._held or [], None
        for event in held:
            super()._publish(*event)

    def _publish(self, event: str, resource: ResourceType, new: JsonObject, old: JsonObject | None) -> None:
        if self._held is not None and resource == _VMIS:
            self._held.append((event, resource, new, old))
        else:
            super()._publish(event, resource, new, old)

    def vm(self) -> JsonObject:
        return deep_copy(self.get(_VMS, "vm", "ns") or {})

    def vmi(self) -> JsonObject | None:
        return self.get(_VMIS, "vm", "ns")

    def waiting(self) -> list[Any]:
        return get_list(self.vm(), "status", "stateChangeRequests")

    async def ask(self, *requests: JsonObject) -> None:
        """A user asks, and the controller has looked at it afterwards."""
        vm = self.vm()
        vm["metadata"]["generation"] += 1
        vm["status"]["stateChangeRequests"] = list(requests)
        self.put(_VMS, vm)
        wanted = vm["metadata"]["generation"]
        await until(lambda: get_object(self.vm(), "status").get("desiredGeneration") == wanted)


async def _up(api: _LateApi) -> str:
    """A running machine; the uid of its instance."""
    template = {"spec": {"domain": {"devices": {}, "memory": {"guest": "128Mi"}}}}
    api.put(
        _VMS,
        {
            "metadata": {"name": "vm", "namespace": "ns", "generation": 1},
            "spec": {"runStrategy": "Manual", "template": template},
            "status": {"stateChangeRequests": [_START]},
        },
    )
    await until(lambda: api.vmi() is not None and not api.waiting())
    await until(lambda: api.list(PODS, "ns"))  # without its launcher, a running instance has failed
    vmi = deep_copy(api.vmi() or {})
    vmi["status"] = {"phase": "Running"}
    api.put(_VMIS, vmi)
    await until(lambda: get_object(api.vm(), "status").get("printableStatus") == "Running")
    return meta.uid(vmi)


async def test_a_start_is_not_taken_for_done_by_an_instance_that_is_gone_already() -> None:
    api = _LateApi()
    async with running_controllers(api, Images("launcher:1", "sidecar:1")):
        gone = await _up(api)
        api.hold()
        api.remove(_VMIS, "vm", "ns")
        await api.ask(_START)
        assert api.waiting() == [_START]
        api.release()
        again = await until(api.vmi)
        assert meta.uid(again) != gone


async def test_a_stop_of_an_instance_that_the_cache_does_not_show_yet_is_not_taken_for_done() -> None:
    api = _LateApi()
    async with running_controllers(api, Images("launcher:1", "sidecar:1")):
        await _up(api)
        fresh = deep_copy(api.vmi() or {})
        del fresh["metadata"]["uid"]
        api.hold()
        api.remove(_VMIS, "vm", "ns")
        uid = meta.uid(api.put(_VMIS, fresh))
        await api.ask({"action": "Stop", "uid": uid})
        assert api.waiting() == [{"action": "Stop", "uid": uid}]
        api.release()
        await until(lambda: api.vmi() is None or meta.is_being_deleted(api.vmi() or {}))
