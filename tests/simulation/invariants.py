"""What must hold: all the time, and once the cluster has come to rest."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.server import SimulatedApi
from tests.simulation.users import NAMESPACE, is_drained
from tests.simulation.world import World

from kubecore import resources
from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import ResourceType
from virtplane.api import resources as kinds

_VMS, _VMIS = kinds.VIRTUAL_MACHINES, kinds.VIRTUAL_MACHINE_INSTANCES
_FINAL = ("Succeeded", "Failed")


class Requests:
    """Watches that no request to start is dropped before an instance was made for it."""

    def __init__(self, api: SimulatedApi) -> None:
        self.broken: list[str] = []
        self._api = api
        self._made: dict[str, int] = {}
        self._asked: dict[str, int] = {}
        """Instances made so far, when a start was asked for."""
        api.observers.append(self._observe)

    def _observe(self, event: str, kind: ResourceType, new: JsonObject, old: JsonObject | None) -> None:
        name = meta.name(new)
        if kind == _VMIS and event == "ADDED":
            self._made[name] = self._made.get(name, 0) + 1
        if kind != _VMS:
            return
        if event == "DELETED":
            self._asked.pop(name, None)
            return
        before, after = _asks_for_start(old), _asks_for_start(new)
        if after and not before:
            self._asked[name] = self._made.get(name, 0)
        if before and not after:
            asked = self._asked.pop(name, 0)
            is_overtaken = meta.is_being_deleted(new) or old is None or _strategy(old) != _strategy(new)
            if self._made.get(name, 0) == asked and not is_overtaken and not self._lives(name):
                self.broken.append(f"the request to start {name} was dropped, and nothing was started for it")

    def _lives(self, name: str) -> bool:
        vmi = self._api.get(_VMIS, name, NAMESPACE)
        phase = get_str(vmi, "status", "phase")
        return vmi is not None and not meta.is_being_deleted(vmi) and phase not in _FINAL


def _asks_for_start(vm: JsonObject | None) -> bool:
    return any(item.get("action") == "Start" for item in get_list(vm, "status", "stateChangeRequests"))


def _strategy(vm: JsonObject) -> str:
    return get_str(vm, "spec", "runStrategy")


def second_launchers(api: SimulatedApi) -> Iterator[str]:
    """Instances with more launchers than one, that of a migration aside."""
    count: dict[str, list[str]] = {}
    for pod in api.list(resources.PODS, NAMESPACE):
        is_launcher = meta.labels(pod).get("kubevirt.io") == "virt-launcher"
        is_over = meta.is_being_deleted(pod) or get_str(pod, "status", "phase") in _FINAL
        if is_launcher and not is_over:
            job = meta.labels(pod).get("kubevirt.io/migrationJobUID", "")
            key = f"{(meta.controller_of(pod) or {}).get('uid')} {job}"
            count.setdefault(key, []).append(meta.name(pod))
    for names in count.values():
        if len(names) > 1:
            yield f"an instance has two unfinished launchers: {', '.join(names)}"


def at_rest(api: SimulatedApi, world: World) -> Iterator[str]:
    """What is wrong with a cluster that has come to rest."""
    yield from _stuck(api)
    yield from _leaked(api, world)
    for vm in api.list(_VMS, NAMESPACE):
        yield from _machine(api, vm)
    for vmi in api.list(_VMIS, NAMESPACE):
        yield from _instance(api, world, vmi)
    for migration in api.list(kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS, NAMESPACE):
        if get_str(migration, "status", "phase") not in _FINAL:
            yield f"migration {meta.name(migration)} never ends: {get_str(migration, 'status', 'phase')}"
    yield from _outdated(api)
    yield from _workloads(api)
    yield from second_launchers(api)
    drained = {meta.name(node) for node in api.list(resources.NODES) if is_drained(node)}
    for containers in world.guests():
        if containers.node in drained:
            yield f"the guest in {containers.key[1]} was never moved away from {containers.node}"


def _stuck(api: SimulatedApi) -> Iterator[str]:
    for kind in [*api.kinds()]:
        for obj in api.list(kind):
            if meta.is_being_deleted(obj):
                held = meta.finalizers(obj) or "its node"
                yield f"{kind.kind} {meta.name(obj)} is deleted and never goes; held by {held}"


def _leaked(api: SimulatedApi, world: World) -> Iterator[str]:
    uids = {meta.uid(obj) for kind in api.kinds() for obj in api.list(kind)}
    for kind in api.kinds():
        for obj in api.list(kind):
            owners = [item["uid"] for item in meta.owner_references(obj)]
            if owners and not uids & set(owners):
                yield f"{kind.kind} {meta.name(obj)} is left of owners that are gone"
    for containers in world.pods.values():
        if containers.uid not in uids:
            yield f"containers of {containers.key[1]} run on {containers.node} without their pod"


def _machine(api: SimulatedApi, vm: JsonObject) -> Iterator[str]:
    name, status = meta.name(vm), get_object(vm, "status")
    vmi = api.get(_VMIS, name, NAMESPACE)
    strategy = _strategy(vm)
    phase = get_str(vmi, "status", "phase")
    if status.get("stateChangeRequests"):
        yield f"machine {name} ({strategy}, {phase}) has open requests: {status['stateChangeRequests']}"
    if (status.get("created") is True) != (vmi is not None):
        yield f"machine {name} says created={status.get('created')}; its instance is {phase or 'absent'}"
    is_ready = vmi is not None and meta.is_condition_true(vmi, "Ready")
    if (status.get("ready") is True) != is_ready:
        yield f"machine {name} says ready={status.get('ready')}; its instance is not what it says"
    if strategy == "Always" and phase != "Running":
        yield f"machine {name} is to run always; its instance is {phase or 'absent'}"
    if strategy == "Halted" and vmi is not None:
        yield f"machine {name} is halted; its instance is {phase}"
    word = get_str(status, "printableStatus")
    expected = {"Running": "Running", "": "Stopped", "Succeeded": "Stopped", "Failed": "Stopped"}.get(phase)
    may_back_off = (
        phase != "Running" and strategy in ("Always", "RerunOnFailure", "Once") and "startFailure" in status
    )
    if expected is None or word not in (expected, "CrashLoopBackOff" if may_back_off else expected):
        yield f"machine {name} ({strategy}) says {word or 'nothing'}; its instance is {phase or 'absent'}"


def _instance(api: SimulatedApi, world: World, vmi: JsonObject) -> Iterator[str]:
    name, phase = meta.name(vmi), get_str(vmi, "status", "phase")
    owner = meta.controller_of(vmi)
    if owner is None:
        yield f"instance {name} belongs to nobody"
    guests = world.guests(f"{NAMESPACE}/{name}")
    if (phase == "Running") != bool(guests):
        yield f"instance {name} is {phase}; {len(guests)} guests run"
    if phase not in ("Running", *_FINAL):
        yield f"instance {name} got no further than {phase}"
    if phase != "Running":
        return
    if guests and guests[0].node != get_str(vmi, "status", "nodeName"):
        yield f"instance {name} says {get_str(vmi, 'status', 'nodeName')}; its guest runs on {guests[0].node}"
    own = {
        meta.uid(pod): get_str(pod, "spec", "nodeName")
        for pod in api.list(resources.PODS, NAMESPACE)
        if (meta.controller_of(pod) or {}).get("uid") == meta.uid(vmi)
        and get_str(pod, "status", "phase") not in _FINAL
    }
    if get_object(vmi, "status", "activePods") != own:
        yield f"instance {name} says activePods={get_object(vmi, 'status', 'activePods')}; they are {own}"
    if not meta.is_condition_true(vmi, "Ready"):
        yield f"instance {name} runs and says that it is not ready: {meta.get_condition(vmi, 'Ready')}"
    if meta.is_condition_true(vmi, "HotVCPUChange"):
        yield f"instance {name} never gets its CPUs: {meta.get_condition(vmi, 'HotVCPUChange')}"
    shown = get_object(vmi, "status", "currentCPUTopology").get("sockets")
    running = guests[0].launcher.vcpus if guests and guests[0].launcher is not None else 0
    if running and shown != running:
        yield f"instance {name} says that it has {shown} sockets; its guest has {running}"


def _outdated(api: SimulatedApi) -> Iterator[str]:
    kubevirt = api.get(kinds.KUBEVIRTS, "kubevirt", "kubevirt")
    strategy = get_object(kubevirt, "spec", "workloadUpdateStrategy")
    image = "launcher:" + get_str(kubevirt, "spec", "imageTag", default="1")
    old = [
        meta.name(vmi)
        for vmi in api.list(_VMIS, NAMESPACE)
        if get_str(vmi, "status", "phase") not in _FINAL
        and get_str(vmi, "status", "launcherContainerImageVersion") != image
    ]
    said = get_int(kubevirt, "status", "outdatedVirtualMachineInstanceWorkloads", default=-1)
    if said != len(old):
        yield f"{said} guests are said to have old launchers; those of {', '.join(old) or 'none'} are old"
    if old and "Evict" in strategy["workloadUpdateMethods"]:
        yield f"the guests {', '.join(old)} keep their old launchers"


def _workloads(api: SimulatedApi) -> Iterator[str]:
    for kind, members, ready_field in (
        (resources.REPLICA_SETS, resources.PODS, "readyReplicas"),
        (resources.STATEFUL_SETS, resources.PODS, "readyReplicas"),
        (kinds.VIRTUAL_MACHINE_INSTANCE_REPLICA_SETS, _VMIS, "readyReplicas"),
        (kinds.VIRTUAL_MACHINE_POOLS, _VMS, "readyReplicas"),
    ):
        for owner in api.list(kind, NAMESPACE):
            own = [obj for obj in api.list(members, NAMESPACE) if _is_of(obj, owner)]
            wanted = get_int(owner, "spec", "replicas")
            status = get_object(owner, "status")
            counts = (len(own), status.get("replicas") or 0, status.get(ready_field) or 0)
            if counts != (wanted, wanted, wanted):
                yield f"{kind.kind} {meta.name(owner)} wants {wanted}; there are, said and ready: {counts}"
    for deployment in api.list(resources.DEPLOYMENTS, NAMESPACE):
        wanted, status = get_int(deployment, "spec", "replicas"), get_object(deployment, "status")
        if (status.get("availableReplicas") or 0, status.get("observedGeneration")) != (
            wanted,
            meta.generation(deployment),
        ):
            yield f"Deployment {meta.name(deployment)} wants {wanted}; it says {status}"
    for daemons in api.list(resources.DAEMON_SETS, NAMESPACE):
        own = [obj for obj in api.list(resources.PODS, NAMESPACE) if _is_of(obj, daemons)]
        status = get_object(daemons, "status")
        wanted, ready = len(api.list(resources.NODES)), status.get("numberReady")
        if (len(own), ready) != (wanted, wanted):
            yield f"DaemonSet {meta.name(daemons)} wants {wanted}; there are {len(own)}, ready {ready}"
    for job in api.list(resources.JOBS, NAMESPACE):
        status = get_object(job, "status")
        succeeded, wanted = status.get("succeeded") or 0, get_int(job, "spec", "completions")
        # More may succeed: a pod that is being deleted can still end well beside its replacement.
        if not meta.is_condition_true(job, "Complete") or succeeded < wanted or status.get("active"):
            yield f"Job {meta.name(job)} wants {wanted}; it says {status}"


def _is_of(obj: JsonObject, owner: JsonObject) -> bool:
    return (meta.controller_of(obj) or {}).get("uid") == meta.uid(owner)
