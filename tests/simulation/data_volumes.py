"""DataVolumes on virtual time: CDI's controllers with a provisioner, a kubelet and users, while things fail.

The world remembers what is in each volume, which no API object knows: so it notices when somebody gets a
volume that is half written, or when a worker writes to one that is somebody's already.
"""

from __future__ import annotations

import asyncio
import logging
import random

from tests.simulation.clock import determined, run_virtually, wall_time
from tests.simulation.faults import CALM, Chances, Weather
from tests.simulation.processes import Process
from tests.simulation.server import USER_AGENT, SimulatedApi
from tests.simulation.simulation import PROMPT_SECONDS, REST_SECONDS, RESTART_SECONDS, Outcome, Trace
from tests.simulation.volume_world import Kubelet, Provisioner, Snapshotter, Volumes
from tests.support.cdi_controllers import PROGRAMS, NoProgress
from tests.support.cdi_rights import controllers_api

from kindling.controllers.environment import Environment
from kindling.controllers.main import CONTROLLERS
from kubecore import resources
from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta
from kubecore.resources import ResourceType
from kubecore.runtime import Manager
from virtplane.api import resources as kinds
from virtplane.storage.cdi.controller.assembly import add_data_volume_controllers
from virtplane.storage.cdi.controller.settings import Settings

NAMESPACE = "ns"
NAMES = ("a", "b", "c")
_NEEDED = ("GarbageCollector", "VolumeController", "VolumeProtection")
_TIDY_KINDS = (
    resources.PODS,
    resources.SERVICES,
    resources.SECRETS,
    kinds.VOLUME_IMPORT_SOURCES,
    kinds.VOLUME_UPLOAD_SOURCES,
    kinds.VOLUME_CLONE_SOURCES,
    kinds.VOLUME_SNAPSHOTS,
)
_GOLDEN = "golden"
"""A claim that holds its content from the beginning."""


class Issuer:
    """Certificates that nobody looks at."""

    def deadline(self) -> str:
        """They are never renewed."""
        return ""

    async def issue(self, service: str, namespace: str) -> dict[str, str]:
        """The data of a secret."""
        return {"tls.crt": "", "tls.key": "", "ca.crt": ""}

    async def issue_client(self, name: str) -> dict[str, str]:
        """A certificate of a client."""
        return {"tls.crt": "", "tls.key": ""}

    async def server_authority(self) -> str:
        """Whom clients trust."""
        return ""


async def run_cdi(client: Client) -> None:
    """The program of cdi-deployment."""
    manager = Manager(client)
    settings = Settings(manager, PROGRAMS)
    add_data_volume_controllers(client, manager, settings, Issuer(), "cdi", NoProgress())
    await manager.run()


async def run_kubernetes(client: Client) -> None:
    """The controllers of Kubernetes that claims need."""
    manager = Manager(client)
    environment = Environment(manager, "CA", clock=wall_time)
    for controller in CONTROLLERS:
        if getattr(controller, "__name__", "") in _NEEDED:
            controller(environment)
    await manager.run()


class DataVolumeSimulation:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.trace = Trace()
        self.wrong: list[str] = []
        self._chance = random.Random(f"story {seed}")
        self._weather = Weather(random.Random(f"weather {seed}"), self.trace.note)
        self._api, self.volumes = SimulatedApi(), Volumes()
        self._api.observers.append(self._observe)
        self._only_populators = self._chance.random() < 0.5
        """A request for a pod that takes effect after the pod's end would fill a claim once more.

        Prime claims are gone by then.
        """
        self._kubelet = Kubelet(self.volumes, random.Random(f"kubelet {seed}"))
        self._client = self._api.client(user_agent=USER_AGENT)
        programs = {
            "kubernetes": run_kubernetes,
            "cdi": run_cdi,
            "provisioner": Provisioner(self.volumes).run,
            "snapshotter": Snapshotter(self.volumes).run,
            "kubelet": self._kubelet.run,
        }
        self._cdi = controllers_api(self._api)
        self._processes = [
            Process(name, program, self._cdi if name == "cdi" else self._api, self._weather)
            for name, program in programs.items()
        ]

    def _observe(self, event: str, kind: ResourceType, new: JsonObject, _: JsonObject | None) -> None:
        """Whoever asked for content must never see a volume that has not all of it."""
        if event == "DELETED":
            return
        name = f"{kind.kind} {meta.name(new)}"
        if kind == kinds.DATA_VOLUMES and get_str(new, "status", "phase") == "Succeeded":
            claim = self._api.get(resources.PERSISTENT_VOLUME_CLAIMS, meta.name(new), NAMESPACE)
            if claim is not None and meta.is_controlled_by(claim, new):
                self.volumes.given(get_str(claim, "spec", "volumeName"), name)
        volume = get_str(new, "spec", "volumeName")
        if kind == resources.PERSISTENT_VOLUME_CLAIMS and new["spec"].get("dataSourceRef") and volume:
            self.volumes.given(volume, name)

    async def run(self) -> None:
        """Calm beginning, foul weather, calm end."""
        self._found()
        for process in self._processes:
            process.start()
        try:
            await asyncio.sleep(2.0)
            await self._foul_weather()
            await self._calm_down()
        finally:
            for process in self._processes:
                await process.kill()
        self.wrong += [f"{each.name} ended: {error!r}" for each in self._processes for error in each.failures]
        self.wrong += [*self.volumes.wrong, *self._api.overwriting]
        self.wrong += [f"CDI may not {request}" for request in self._cdi.refused]

    def _found(self) -> None:
        for name in ("cdi", NAMESPACE):
            self._api.put(resources.NAMESPACES, {"metadata": {"name": name}, "status": {"phase": "Active"}})
        self._api.put(resources.CSI_DRIVERS, {"metadata": {"name": "csi.example"}, "spec": {}})
        for name, provisioner in (("csi", "csi.example"), ("old", "old.example")):
            self._api.put(resources.STORAGE_CLASSES, {"metadata": {"name": name}, "provisioner": provisioner})
        spec = {"featureGates": ["HonorWaitForFirstConsumer"]}
        status = {"filesystemOverhead": {"global": "0.06"}}
        self._api.put(kinds.CDI_CONFIGS, {"metadata": {"name": "config"}, "spec": spec, "status": status})
        strategy = {"cloneStrategy": self._chance.choice(["copy", "snapshot", "csi-clone"])}
        self._api.put(kinds.STORAGE_PROFILES, {"metadata": {"name": "csi"}, "status": strategy})
        snapshots = {"metadata": {"name": "snap"}, "driver": "csi.example", "deletionPolicy": "Delete"}
        self._api.put(kinds.VOLUME_SNAPSHOT_CLASSES, snapshots)
        self._found_golden()

    def _found_golden(self) -> None:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "csi",
            "volumeMode": "Filesystem",
            "volumeName": "pv-golden",
        }
        status = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
        metadata = {"name": _GOLDEN, "namespace": NAMESPACE}
        claim = self._api.put(
            resources.PERSISTENT_VOLUME_CLAIMS, {"metadata": metadata, "spec": spec, "status": status}
        )
        reference = {**metadata, "kind": "PersistentVolumeClaim", "uid": meta.uid(claim)}
        volume = {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "claimRef": reference,
            "csi": {"driver": "csi.example", "volumeHandle": _GOLDEN},
            "storageClassName": "csi",
            "volumeMode": "Filesystem",
        }
        document = {"metadata": {"name": "pv-golden"}, "spec": volume, "status": {"phase": "Bound"}}
        self._api.put(resources.PERSISTENT_VOLUMES, document)
        self.volumes.whole.add("pv-golden")

    async def _foul_weather(self) -> None:
        chance, loop = self._chance, asyncio.get_running_loop()
        common = chance.choice([0.0, 0.02, 0.05])
        self._weather.chances = Chances(
            refused=chance.choice([0.0, common]),
            lost_before=chance.choice([0.0, common]),
            lost_after=chance.choice([0.0, common]),
            late=chance.choice([0.0, common]),
            slow=chance.choice([0.0, common]),
            stale=chance.choice([0.0, 0.05, 0.2]),
            broken=chance.choice([0.0, 0.01]),
            expired=chance.choice([0.0, 0.2]),
        )
        deaths = chance.choice([0.0, 0.1, 0.4])
        end = loop.time() + chance.uniform(60.0, 180.0)
        while loop.time() < end and not self.volumes.wrong:
            await asyncio.sleep(chance.expovariate(1 / 4.0))
            if chance.random() < deaths:
                process = chance.choice(self._processes)
                await process.kill()
                loop.call_later(chance.uniform(0.1, 30.0), process.start)
            else:
                await self._act()

    async def _act(self) -> None:
        """A user makes a DataVolume, or deletes one."""
        name = self._chance.choice(NAMES)
        found = self._api.get(kinds.DATA_VOLUMES, name, NAMESPACE)
        try:
            if found is None and self._api.get(resources.PERSISTENT_VOLUME_CLAIMS, name, NAMESPACE) is None:
                await self._client.create(kinds.DATA_VOLUMES, self._data_volume(name), NAMESPACE)
            elif found is not None and self._chance.random() < 0.2:
                await self._client.delete(kinds.DATA_VOLUMES, name, NAMESPACE)
        except StatusError as error:
            self.trace.note(f"user: {error.message}")

    def _data_volume(self, name: str) -> JsonObject:
        source: JsonObject = self._chance.choice(
            [
                {"http": {"url": "http://files.example/x"}},
                {"upload": {}},
                {"pvc": {"name": _GOLDEN, "namespace": NAMESPACE}},
                {"pvc": {"name": _GOLDEN, "namespace": NAMESPACE}},
            ]
        )
        storage = {
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "csi" if self._only_populators else self._chance.choice(["csi", "old"]),
        }
        return {
            "apiVersion": "cdi.kubevirt.io/v1beta1",
            "kind": "DataVolume",
            "metadata": {"name": name},
            "spec": {"source": source, "pvc": storage},
        }

    async def _calm_down(self) -> None:
        self.trace.note("calm weather")
        self._weather.chances = CALM
        self._kubelet.has_trouble = False
        loop = asyncio.get_running_loop()
        for process in self._processes:
            process.start()
        calm = self._weather.last_work = loop.time()
        while loop.time() - self._weather.last_work < REST_SECONDS and not self.wrong:
            await asyncio.sleep(10.0)
            if self._weather.last_work - calm > PROMPT_SECONDS:
                self.wrong.append(f"no rest: {self._weather.work[-1]}")
        self.wrong += self._untidy()
        if not self.wrong:
            await self._restart_at_rest()

    async def _restart_at_rest(self) -> None:
        """Who begins anew finds nothing to do."""
        for process in self._processes:
            await process.kill()
        self._weather.work.clear()
        for process in self._processes:
            process.start()
        await asyncio.sleep(RESTART_SECONDS)
        self.wrong += [f"after a restart at rest, {text}" for text in self._weather.work]

    def _untidy(self) -> list[str]:
        """What should not be so at the end: every DataVolume has its volume, and nothing else is left."""
        found = []
        volumes = {meta.name(each): each for each in self._api.list(resources.PERSISTENT_VOLUMES)}
        for each in self._api.list(kinds.DATA_VOLUMES, NAMESPACE):
            phase = get_str(each, "status", "phase")
            if phase != "Succeeded":
                found.append(f"DataVolume {meta.name(each)} is in phase {phase!r}")
        owners = {meta.name(each) for each in self._api.list(kinds.DATA_VOLUMES, NAMESPACE)} | {_GOLDEN}
        for claim in self._api.list(resources.PERSISTENT_VOLUME_CLAIMS):
            if meta.name(claim) not in owners:
                found.append(f"claim {meta.name(claim)} is left")
            if volumes.pop(get_str(claim, "spec", "volumeName"), None) is None:
                found.append(f"claim {meta.name(claim)} has no volume")
        found += [f"volume {name} is left" for name in volumes]
        return found + [
            f"{kind.kind} {meta.name(each)} is left" for kind in _TIDY_KINDS for each in self._api.list(kind)
        ]


class _Alarms(logging.Handler):
    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        problem = record.exc_info[1] if record.exc_info else None
        self._found.append(f"{record.name}: {record.getMessage()}: {problem!r}")


def simulate(seed: int) -> Outcome:
    """Run one seed to its end."""
    with determined(seed):

        async def story() -> Outcome:
            simulation = DataVolumeSimulation(seed)
            alarms = _Alarms(simulation.wrong)
            logging.getLogger().addHandler(alarms)
            try:
                await simulation.run()
            finally:
                logging.getLogger().removeHandler(alarms)
            return Outcome(seed, simulation.trace, simulation.wrong)

        outcome: Outcome = run_virtually(story)
        return outcome
