"""Reads the OpenAPI documents of aggregated API servers, from time to time, and keeps what was last good."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import aiohttp

from kubecore import errors

from ..discovery.remote_openapi import RemoteApi, UnusableDocument, read_v2, read_v3
from .api_services import AggregatedApis, GroupVersion

_LOG = logging.getLogger(__name__)
_EVERY_SECONDS = 60.0
_AFTER_CHANGE_SECONDS = 1.0
"""How long changes are waited for that come together, as when a server starts."""

_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class _Known:
    api: RemoteApi
    tag_v2: str = ""
    tag_v3: str = ""
    trouble: str = ""
    """What was wrong at the last try, for which the log has a line already."""


class RemoteOpenApis:
    """What the aggregated servers say of their APIs. One that is slow or talks nonsense delays no other."""

    def __init__(self, aggregated: AggregatedApis) -> None:
        self._aggregated = aggregated
        self._known: dict[GroupVersion, _Known] = {}
        self.generation = 0
        """Changes whenever `all` does."""

    def all(self) -> Mapping[GroupVersion, RemoteApi]:
        """The documents by group and version."""
        return {key: known.api for key, known in sorted(self._known.items())}

    async def run(self) -> None:
        """Read after changes and once in a minute, until cancelled."""
        while True:
            await self.refresh()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._aggregated.republished.wait(), _EVERY_SECONDS)
                await asyncio.sleep(_AFTER_CHANGE_SECONDS)
            self._aggregated.republished.clear()

    async def refresh(self) -> None:
        """Read the documents of all servers that are available, and forget those that are gone."""
        served = self._aggregated.served()
        for key in [key for key in self._known if key not in served]:
            del self._known[key]
            self.generation += 1
        await asyncio.gather(*(self._read(key) for key, is_available in served.items() if is_available))

    async def _read(self, key: GroupVersion) -> None:
        group, version = key
        known = self._known.get(key) or _Known(RemoteApi())
        trouble = ""
        v2 = v3 = None
        try:
            v3 = await self._fetch(key, f"/openapi/v3/apis/{group}/{version}", known.tag_v3, read_v3)
            v2 = await self._fetch(
                key, "/openapi/v2", known.tag_v2, lambda body: read_v2(body, group, version)
            )
        except (aiohttp.ClientError, OSError, TimeoutError, errors.StatusError, ValueError) as error:
            trouble = str(error) or type(error).__name__
        except UnusableDocument as error:
            trouble = str(error)
        if key not in self._aggregated.served():
            return
        if trouble and trouble != known.trouble:
            _LOG.warning(
                "The OpenAPI document of an aggregated API cannot be read; clients see what was last read",
                extra={"group": group, "version": version, "err": trouble},
            )
        new = replace(known, trouble=trouble)
        if v3 is not None:
            new = replace(new, api=replace(new.api, v3=v3[0]), tag_v3=v3[1])
        if v2 is not None:
            new = replace(new, api=replace(new.api, v2=v2[0]), tag_v2=v2[1])
        self._known[key] = new
        if new.api != known.api:
            self.generation += 1

    async def _fetch(
        self, key: GroupVersion, path: str, tag: str, read: Callable[[bytes], _Read]
    ) -> tuple[_Read, str] | None:
        """What a document says, and its tag; None where it is as before, or where the server has none."""
        status, new_tag, body = await self._aggregated.fetch(key, path, tag)
        if status in (304, 404):
            return None
        if status != 200:
            raise UnusableDocument(f"{path}: the server answers {status}")
        try:
            return await asyncio.to_thread(read, body), new_tag
        except UnusableDocument as error:
            raise UnusableDocument(f"{path}: {error}") from error
