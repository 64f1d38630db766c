"""A cluster in memory with controllers at work, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.managers import working
from tests.support.roles import RestrictedApi

from kindling.controllers.environment import Environment
from kubecore.json import JsonObject
from kubecore.resources import PODS, ResourceType
from kubecore.runtime import Manager
from kubecore.testing import MemoryApi

START = datetime(2026, 1, 1, tzinfo=UTC)


class Cluster:
    """The server, and the controllers that a test starts."""

    def __init__(self) -> None:
        self.api = MemoryApi()
        self.client = self.api.client()

    def now(self) -> datetime:
        """Wall time that moves with the loop's virtual clock."""
        return START + timedelta(seconds=asyncio.get_running_loop().time())

    @asynccontextmanager
    async def running(
        self, *controllers: Callable[[Environment], object], **environment: Any
    ) -> AsyncIterator[None]:
        """Run controllers for the duration of the context, with the rights that they have in a cluster."""
        restricted = RestrictedApi(self.api, "system:kube-controller-manager")
        manager = Manager(restricted.client())
        surroundings = Environment(manager, "CA", clock=self.now, **environment)
        for controller in controllers:
            controller(surroundings)
        async with working(manager):
            await asyncio.sleep(1)
            yield
        assert restricted.refused == []

    def get(self, resource: ResourceType, name: str, namespace: str = "") -> JsonObject:
        """An object that must be there."""
        found = self.api.get(resource, name, namespace)
        assert found is not None, f"{resource.plural} {namespace}/{name} is not there"
        return found

    def pods(self, namespace: str = "lab") -> list[JsonObject]:
        """All pods."""
        return self.api.list(PODS, namespace)

    def make_ready(self, pod: JsonObject, ip: str = "10.0.0.1") -> None:
        """Do what a node does: run the pod and find it ready."""
        since = self.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
        }
        self.api.put(PODS, {**pod, "status": status})

    def finish(self, pod: JsonObject, phase: str) -> None:
        """End a pod."""
        moment = self.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        ended = {"name": "c", "state": {"terminated": {"exitCode": 0, "finishedAt": moment}}}
        self.api.put(PODS, {**pod, "status": {"phase": phase, "containerStatuses": [ended]}})


@pytest.fixture
def cluster() -> Cluster:
    """An empty cluster."""
    return Cluster()
