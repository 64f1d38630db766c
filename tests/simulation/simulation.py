"""A whole cluster in one event loop on virtual time, from one seed: run it, and see what went wrong.

Controllers join by being in the lists that the products run: ``kindling.controllers.main.CONTROLLERS`` and
``virtplane.compute.controller.component.add_controllers``.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from unittest import mock

from tests.simulation import invariants, moves
from tests.simulation.clock import determined, run_virtually, wall_time
from tests.simulation.faults import CALM, Chances, Weather
from tests.simulation.guests import NodeHandler, SimulatedMachine
from tests.simulation.nodes import LEASE_NAMESPACE, NodeAgent, node_object
from tests.simulation.processes import Process, Program
from tests.simulation.server import USER_AGENT, SimulatedApi
from tests.simulation.users import NAMESPACE, Users
from tests.simulation.world import TwoGuests, World

import virtplane.compute.handler.controller
import virtplane.compute.handler.status
from kindling.controllers.environment import Environment
from kindling.controllers.main import CONTROLLERS
from kindling.scheduler.loop import Scheduler
from kubecore import resources
from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.runtime import EventRecorder, Manager
from virtplane.api import resources as kinds
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.component import add_controllers
from virtplane.compute.launcherpod.inputs import Images

REST_SECONDS = 330.0
"""Nobody may ask for a change for so long; it is more than any expectation or back-off may wait."""
RESTART_SECONDS = 60.0
"""Who begins anew has looked at everything after so long."""
PROMPT_SECONDS = 240.0
"""So long after the last fault everything must have been asked for.

A back-off that doubles waits about as long again as the faults have lasted, 180 s at most; what it held up
then takes its time. Nobody may depend on expectations that time out, which takes 300 s.
"""
_TAIL = 150


@dataclass(slots=True)
class Trace:
    """What happened: the last lines, and a digest of all of them."""

    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL))
    count: int = 0
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def note(self, line: str) -> None:
        """Add a line, with the time."""
        text = f"{asyncio.get_running_loop().time():10.3f}  {line}"
        self.lines.append(text)
        self.count += 1
        self._digest.update(text.encode())

    @property
    def digest(self) -> str:
        """The same for the same happenings."""
        return self._digest.hexdigest()


@dataclass(slots=True)
class Outcome:
    """What became of a seed."""

    seed: int
    trace: Trace
    wrong: list[str]

    def report(self) -> str:
        """Everything that helps to understand a failure."""
        return "\n".join(
            [
                f"seed={self.seed}: {len(self.wrong)} things are wrong (replay with --seed {self.seed})",
                *(f"  - {item}" for item in self.wrong),
                f"the last {len(self.trace.lines)} of {self.trace.count} events:",
                *self.trace.lines,
            ]
        )


class _Alarms(logging.Handler):
    """Collects what components log as an error: an exception that nobody expected."""

    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        problem = record.exc_info[1] if record.exc_info else None
        self._found.append(f"{record.name}: {record.getMessage()}: {problem!r}")


class Simulation:
    """One seed's cluster, users and faults."""

    def __init__(self, seed: int) -> None:
        self.trace = Trace()
        self.wrong: list[str] = []
        chances = [random.Random(f"{part} {seed}") for part in ("weather", "users", "nodes", "story")]
        weather_chance, users_chance, nodes_chance, self._chance = chances
        self._weather = Weather(weather_chance, self.trace.note)
        self._api = SimulatedApi()
        self._world = World(self.trace.note)
        self._requests = invariants.Requests(self._api)
        self._users = Users(
            self._api, self._world, self._api.client(user_agent=USER_AGENT), users_chance, self.trace.note
        )
        self._nodes = [f"n{number}" for number in range(1, self._chance.randint(2, 3) + 1)]
        self._processes = [
            self._process("kindling-controllers", run_kindling_controllers),
            self._process("scheduler", run_scheduler),
            self._process("virt-controller", run_virt_controller),
        ]
        for node in self._nodes:
            self._processes += [
                self._process(f"kubelet-{node}", NodeAgent(node, self._world, nodes_chance).run),
                self._process(f"virt-handler-{node}", NodeHandler(node, self._world, nodes_chance).run),
            ]

    def _process(self, name: str, program: Program) -> Process:
        return Process(name, program, self._api, self._weather)

    async def run(self) -> None:
        """The whole story: calm beginning, foul weather, calm end."""
        machine = partial(SimulatedMachine, self._world, self._weather)
        alarms = _Alarms(self.wrong)
        logging.getLogger().addHandler(alarms)
        try:
            with (
                mock.patch.object(virtplane.compute.handler.controller, "Machine", machine),
                mock.patch.object(virtplane.compute.handler.status, "migratability", moves.migratability),
            ):
                await self._tell()
        finally:
            logging.getLogger().removeHandler(alarms)

    async def _tell(self) -> None:
        self._found_cluster()
        for process in self._processes:
            process.start()
        try:
            await asyncio.sleep(2.0)
            await self._users.begin()
            await self._foul_weather()
            await self._calm_down()
        finally:
            for process in self._processes:
                await process.kill()
        self.wrong += [
            f"{process.name} ended: {_reason(error)}"
            for process in self._processes
            for error in process.failures
        ]
        self.wrong += [*self._requests.broken, *self._api.overwriting]

    def _found_cluster(self) -> None:
        for name in ("default", "kubevirt", LEASE_NAMESPACE, NAMESPACE):
            self._api.put(resources.NAMESPACES, {"metadata": {"name": name}, "status": {"phase": "Active"}})
        for name in self._nodes:
            self._api.put(resources.NODES, node_object(name))
        self._api.put(
            kinds.KUBEVIRTS,
            {
                "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
                "spec": {"workloadUpdateStrategy": self._updates()},
                "status": {"phase": "Deployed", "observedGeneration": 1},
            },
        )

    def _updates(self) -> JsonObject:
        methods = self._chance.choice([[], ["Evict"], ["LiveMigrate"], ["LiveMigrate", "Evict"]])
        return {"workloadUpdateMethods": methods, "batchEvictionSize": 1, "batchEvictionInterval": "20s"}

    async def _foul_weather(self) -> None:
        """Faults, deaths and users, for some minutes."""
        chance = self._chance
        common = chance.choice([0.0, 0.01, 0.03])
        self._weather.chances = Chances(
            refused=chance.choice([0.0, common]),
            lost_before=chance.choice([0.0, common]),
            lost_after=chance.choice([0.0, common]),
            late=chance.choice([0.0, common]),
            slow=chance.choice([0.0, common]),
            stale=chance.choice([0.0, common]),
            broken=chance.choice([0.0, 0.01]),
            expired=chance.choice([0.0, 0.2]),
        )
        end = asyncio.get_running_loop().time() + chance.uniform(60.0, 180.0)
        deaths = chance.choice([0.0, 0.1, 0.3])
        while asyncio.get_running_loop().time() < end and not self.wrong:
            await asyncio.sleep(chance.expovariate(1 / 5.0))
            if chance.random() < deaths:
                await self._kill_one()
            else:
                await self._users.act()
            self.wrong += invariants.second_launchers(self._api)

    async def _kill_one(self) -> None:
        process = self._chance.choice(self._processes)
        if not process.is_running:
            process.start()
            return
        await process.kill()
        if self._chance.random() < 0.7:
            asyncio.get_running_loop().call_later(self._chance.uniform(0.1, 90.0), process.start)

    async def _calm_down(self) -> None:
        """No more faults: everything must come true and then to rest."""
        self.trace.note("calm weather")
        self._weather.chances = CALM
        self._world.has_trouble = False
        loop = asyncio.get_running_loop()
        await self._users.end()
        for process in self._processes:
            process.start()
        calm = self._weather.last_work = loop.time()
        while loop.time() - self._weather.last_work < REST_SECONDS and not self.wrong:
            await asyncio.sleep(10.0)
            late = self._weather.last_work - calm
            if late > PROMPT_SECONDS:
                self.wrong.append(f"{late:.0f} s after the last fault, {self._weather.work[-1]}")
        if not self.wrong:
            self.wrong += invariants.at_rest(self._api, self._world)
        if not self.wrong:
            await self._restart_at_rest()

    async def _restart_at_rest(self) -> None:
        """Whoever begins anew and looks at everything must find nothing to do.

        Otherwise somebody was not woken for something, and would do it at the next chance event.
        """
        self.trace.note("all processes begin anew")
        for process in self._processes:
            await process.kill()
        self._weather.work.clear()
        for process in self._processes:
            process.start()
        await asyncio.sleep(RESTART_SECONDS)
        self.wrong += [f"after a restart at rest, {text}" for text in self._weather.work]


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) if isinstance(error, TwoGuests) else repr(error)


async def run_kindling_controllers(client: Client) -> None:
    """The program of kindling's controllers: all of them."""
    manager = Manager(client)
    environment = Environment(manager, "CA", clock=wall_time)
    for controller in CONTROLLERS:
        controller(environment)
    await manager.run()


async def run_scheduler(client: Client) -> None:
    """The program of the scheduler."""
    manager = Manager(client)
    Scheduler(manager)
    await manager.run()


async def run_virt_controller(client: Client) -> None:
    """The program of virt-controller: all of its controllers."""
    async with EventRecorder(client, "virtualmachine-controller") as recorder:
        manager = Manager(client)
        add_controllers(Cluster(client, manager, recorder, Images("launcher:1", "sidecar:1")))
        await manager.run()


def simulate(seed: int) -> Outcome:
    """Run one seed to its end. The same seed gives the same trace, always."""
    with determined(seed):

        async def story() -> Outcome:
            simulation = Simulation(seed)
            await simulation.run()
            return Outcome(seed, simulation.trace, simulation.wrong)

        outcome: Outcome = run_virtually(story)
        return outcome
