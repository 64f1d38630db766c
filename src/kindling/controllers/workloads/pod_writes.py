"""Creating and deleting the pods of an owner, with events on the owner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass

from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import PODS
from kubecore.runtime import EventRecorder, Expectations, Key


@dataclass(frozen=True, slots=True)
class PodWrites:
    """Creates and deletes pods; `expectations` are those of the owners."""

    client: Client
    recorder: EventRecorder
    expectations: Expectations

    async def create(self, key: Key, owner: JsonObject, pod: JsonObject) -> None:
        """Create the pod. Raises StatusError and ConnectionFailed."""
        try:
            with self.expectations.creating(key):
                created = await self.client.create(PODS, pod)
        except StatusError as error:
            self.recorder.event(owner, "Warning", "FailedCreate", f"Error creating: {error.message}")
            raise
        self.recorder.event(owner, "Normal", "SuccessfulCreate", f"Created pod: {meta.name(created)}")

    async def delete(self, key: Key, owner: JsonObject, pod: JsonObject) -> None:
        """Delete the pod; a missing one is no error. Raises StatusError and ConnectionFailed."""
        try:
            with self.expectations.deleting(key, meta.uid(pod)):
                await self.client.delete(PODS, meta.name(pod), key[0], uid=meta.uid(pod))
        except StatusError as error:
            if error.code == 404:
                return
            self.recorder.event(owner, "Warning", "FailedDelete", f"Error deleting: {error.message}")
            raise
        self.recorder.event(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {meta.name(pod)}")


async def all_of(writes: Iterable[Awaitable[None]]) -> None:
    """Wait for all to end, then raise the first failure, if any."""
    for result in await asyncio.gather(*writes, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
