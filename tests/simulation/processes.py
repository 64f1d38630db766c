"""Processes that speak with the API server: they end at any moment and come back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.simulation.faults import Link, Server, Weather

from kubecore.client import Client, ClientConfig

Program = Callable[[Client], Awaitable[None]]
"""What a process does from its start until it is cancelled."""


class Process:
    """One program that is started, killed and started again."""

    def __init__(self, name: str, program: Program, api: Server, weather: Weather) -> None:
        self.name = name
        self.failures: list[BaseException] = []
        """How the program ended by itself, which no program may."""
        self._program = program
        self._api = api
        self._weather = weather
        self._link: Link | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it lives."""
        return self._task is not None

    def start(self) -> None:
        """Begin (again), with nothing remembered."""
        if self._task is not None:
            return
        self._weather.note(f"{self.name} starts")
        self._link = Link(self._api, self._weather, self.name)
        client = Client(ClientConfig(server="memory://", user_agent=self.name), self._link)
        self._task = asyncio.create_task(self._live(client), name=self.name)

    async def _live(self, client: Client) -> None:
        try:
            await self._program(client)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a program must not end; the simulation reports how it did
            self._weather.note(f"{self.name} ended by itself: {error!r}")
            self.failures.append(error)

    async def kill(self) -> None:
        """End it at once: whatever it still tries to say is not heard."""
        task, self._task = self._task, None
        if task is None or self._link is None:
            return
        self._weather.note(f"{self.name} is killed")
        self._link.is_cut = True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
