"""CDI's components in the operator's process, for as long as CDI is installed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from kubecore import resources
from kubecore.certificates import pair_of
from kubecore.json import JsonObject
from kubecore.logs import LOG_LEVELS, LogLevels
from kubecore.objects import meta
from kubecore.runtime import Health, Manager
from kubecore.runtime.component import Context, run_component
from virtplane.components import CDI_COMPONENTS, load_component
from virtplane.operators.cdi.product import PRODUCT
from virtplane.operators.cdi.verbosity import follow
from virtplane.operators.kit.mirror import write_pair

logger = logging.getLogger(__name__)


class SharedProcess:
    """Runs the components while all their certificates exist, which the operator issues and removes.

    `directories` says where each certificate is written, by the name of its secret.
    """

    def __init__(
        self,
        context: Context,
        directories: Mapping[str, Path],
        names: Iterable[str] = CDI_COMPONENTS,
        *,
        verbosity: int = 1,
    ) -> None:
        """`verbosity` is how much the components log unless the CDI object says it."""
        self._verbosity = verbosity
        self._context = context
        self._directories = directories
        self._names = tuple(names)
        self._issued: set[str] = set()
        self._changed = asyncio.Event()
        self._health: Health | None = None

    def is_ready(self) -> bool:
        """Whether the components run and can serve."""
        return self._health is not None and self._health.ready()[0]

    async def run(self, manager: Manager) -> None:
        """Run until cancelled. Raises what a component raises, and ComponentEnded."""
        secrets = manager.informer(
            resources.SECRETS, namespace=self._context.namespace, label_selector=PRODUCT.selector
        )
        secrets.add_handler(self._observe)
        levels = self._context.settings.get(LOG_LEVELS)
        if isinstance(levels, LogLevels):
            follow(manager, self._names, levels, self._verbosity)
        manager.add_runnable("cdi-components", self._follow)
        await manager.run()

    def _observe(self, event: str, _: JsonObject | None, secret: JsonObject) -> None:
        name = meta.name(secret)
        directory = self._directories.get(name)
        pair = pair_of(secret)
        if directory is None:
            return
        if event == "DELETED" or pair is None:
            self._issued.discard(name)
        else:
            write_pair(directory, pair)
            self._issued.add(name)
        self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._until(installed=True)
            logger.info("CDI is installed: %s run in this process", ", ".join(self._names))
            work = asyncio.create_task(self._run_components(), name="cdi-components-work")
            gone = asyncio.create_task(self._until(installed=False), name="cdi-is-removed")
            try:
                await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    work.result()
            finally:
                self._health = None
                for task in (work, gone):
                    task.cancel()
                await asyncio.gather(work, gone, return_exceptions=True)
            logger.info("CDI is removed: its components end")

    async def _until(self, *, installed: bool) -> None:
        while (self._issued == set(self._directories)) != installed:
            self._changed.clear()
            await self._changed.wait()

    async def _run_components(self) -> None:
        """Run all components, with a health of their own: they must not keep KubeVirt's from being ready."""
        outer = self._context
        self._health = Health()
        inner = Context(
            client_factory=outer.client,
            namespace=outer.namespace,
            identity=outer.identity,
            node_name=outer.node_name,
            settings=outer.settings,
            health=self._health,
            registry=outer.registry,
        )
        async with asyncio.TaskGroup() as group:
            for name in self._names:
                group.create_task(run_component(load_component(name), inner), name=name)
