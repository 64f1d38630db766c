"""Leader election with a Lease, by client-go's algorithm."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, deep_copy, get_int, get_object, get_str
from kubecore.resources import LEASES

logger = logging.getLogger(__name__)

LEASE_SECONDS = 15.0
RENEW_DEADLINE_SECONDS = 10.0
RETRY_SECONDS = 2.0
_CHANGED = (404, 409)
"""Answers to the renewal of a lease that somebody else has written to, or deleted."""


class LeadershipLost(Exception):
    """The lease was not renewed by the deadline: another process may lead, so this one must stop working."""


class LeaderElector:
    """Runs a function while this `identity` holds the lease `namespace/name`.

    Clocks of different hosts are never compared: a candidate takes a lease that did not change for the
    lease duration by the candidate's own clock.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        identity: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        renew_deadline_seconds: float = RENEW_DEADLINE_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._client = client
        self._name = name
        self._namespace = namespace
        self._identity = identity
        self._lease_seconds = lease_seconds
        self._renew_deadline_seconds = renew_deadline_seconds
        self._retry_seconds = retry_seconds
        self._observed: JsonObject = {}
        self._observed_at = 0.0
        self._leading = False

    @property
    def is_leader(self) -> bool:
        """Whether this identity leads now."""
        return self._leading

    @property
    def leader(self) -> str:
        """The identity of the last observed leader, or empty."""
        return get_str(self._observed, "spec", "holderIdentity")

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` whenever this identity leads, until it returns; it may be cancelled and run again.

        On a machine that is too busy leases are lost. A process that ended then would take with it what else
        it does, and be longer in starting again, which is work for the same machine.
        """
        while True:
            try:
                return await self.run(work)
            except LeadershipLost as error:
                logger.warning("%s; working again once the lease is ours", error)

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for leadership, then run `lead`; return when it returns.

        Raises LeadershipLost when the lease is lost meanwhile; `lead` is cancelled first. The lease is
        released at the end in every case, so that a successor need not wait.
        """
        await self._acquire()
        self._leading = True
        # Tools look for client-go's words.
        logger.info(
            "%s successfully acquired lease %s/%s: leading", self._identity, self._namespace, self._name
        )
        work = asyncio.ensure_future(lead())
        renewal = asyncio.create_task(self._renew(), name=f"lease-{self._name}")
        try:
            await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
                return
            raise LeadershipLost(f"leader election lost: {self._namespace}/{self._name}")
        finally:
            self._leading = False
            for task in (work, renewal):
                task.cancel()
            await asyncio.gather(work, renewal, return_exceptions=True)
            await self._release()

    async def _acquire(self) -> None:
        while True:
            if await self._try():
                return
            await asyncio.sleep(self._retry_seconds * random.uniform(1.0, 2.2))

    async def _renew(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._renew_deadline_seconds
        while True:
            await asyncio.sleep(self._retry_seconds)
            try:
                async with asyncio.timeout_at(deadline):
                    renewed = await self._try()
            except TimeoutError:
                return
            if renewed:
                deadline = loop.time() + self._renew_deadline_seconds
            elif loop.time() >= deadline:
                return

    async def _try(self) -> bool:
        try:
            return await self._try_once()
        except (StatusError, ConnectionFailed) as error:
            logger.info(
                "cannot acquire or renew lease %s/%s: %s; trying again", self._namespace, self._name, error
            )
            return False

    async def _try_once(self) -> bool:
        observed = get_object(self._observed, "spec")
        if self.leader == self._identity and self._is_valid(observed):
            try:
                return await self._renew_observed()
            except StatusError as error:
                if error.code not in _CHANGED:
                    raise
        return await self._read_and_claim()

    async def _renew_observed(self) -> bool:
        """Renew the lease as it was written last, without reading it: half of the requests.

        Raises StatusError, ConnectionFailed.
        """
        spec = get_object(self._observed, "spec")
        since, transitions = get_str(spec, "acquireTime"), get_int(spec, "leaseTransitions")
        updated = {**self._observed, "spec": {**spec, **self._claim(since, _now(), transitions)}}
        self._observe(await self._client.update(LEASES, updated))
        return True

    async def _read_and_claim(self) -> bool:
        now = _now()
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            body = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": self._claim(now, now, 0),
            }
            self._observe(await self._client.create(LEASES, body))
            return True
        self._observe(lease)
        spec = get_object(lease, "spec")
        holder = get_str(spec, "holderIdentity")
        mine = holder == self._identity
        if holder and not mine and self._is_valid(spec):
            return False
        since = get_str(spec, "acquireTime", default=now) if mine else now
        transitions = get_int(spec, "leaseTransitions") + (0 if mine else 1)
        updated = deep_copy(lease)
        updated["spec"] = {**spec, **self._claim(since, now, transitions)}
        self._observe(await self._client.update(LEASES, updated))
        return True

    def _claim(self, since: str, now: str, transitions: int) -> JsonObject:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._lease_seconds),
            "acquireTime": since,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _observe(self, lease: JsonObject) -> None:
        if get_object(lease, "spec") != get_object(self._observed, "spec"):
            self._observed_at = asyncio.get_running_loop().time()
        self._observed = lease

    def _is_valid(self, spec: JsonObject) -> bool:
        duration = float(get_int(spec, "leaseDurationSeconds", default=int(self._lease_seconds)))
        return asyncio.get_running_loop().time() < self._observed_at + duration

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(self._retry_seconds):
                lease = await self._client.get(LEASES, self._name, self._namespace)
                if get_str(lease, "spec", "holderIdentity") != self._identity:
                    return
                now = _now()
                lease["spec"] = {
                    **get_object(lease, "spec"),
                    "holderIdentity": "",
                    "leaseDurationSeconds": 1,
                    "acquireTime": now,
                    "renewTime": now,
                }
                await self._client.update(LEASES, lease)
        except (StatusError, ConnectionFailed, TimeoutError) as error:
            logger.info(
                "cannot release lease %s/%s: %s; the next leader must wait until it expires",
                self._namespace,
                self._name,
                error,
            )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
