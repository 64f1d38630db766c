"""cdi-operator: the component.

It does nothing until there is a CDI object; what it needs to reconcile one is loaded then.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from prometheus_client import Gauge

from kubecore.runtime import LeaderElector, Manager
from kubecore.runtime.component import Context
from virtplane import __version__
from virtplane.api import cdi_names as names
from virtplane.api import paths
from virtplane.api import resources as api
from virtplane.operators.cdi.product import Settings
from virtplane.serving.frontproxy import REQUIRE_WEBHOOK_CERTIFICATE

LEASE = "cdi-operator-leader-election-helper"


def settings_of(context: Context) -> Settings:
    """The operator's settings, of the process and of upstream's environment variables."""
    default = Settings("", "", "", "")
    runbook = os.environ.get("RUNBOOK_URL_TEMPLATE", "")
    return Settings(
        namespace=context.namespace,
        image=str(context.settings.get("image") or ""),
        layout=str(context.settings.get("layout") or "distributed"),
        version=f"v{__version__}",
        monitoring_namespace=os.environ.get("MONITORING_NAMESPACE") or default.monitoring_namespace,
        runbook_url=runbook if runbook.count("%s") == 1 else default.runbook_url,
        verbosity=int(context.settings.get("verbosity") or default.verbosity),
        require_webhook_certificate=bool(context.settings.get(REQUIRE_WEBHOOK_CERTIFICATE)),
        importer_image=os.environ.get("IMPORTER_IMAGE", ""),
        cloner_image=os.environ.get("CLONER_IMAGE", ""),
        upload_server_image=os.environ.get("UPLOAD_SERVER_IMAGE", ""),
    )


def certificate_directories(context: Context) -> dict[str, Path]:
    """Where components of a shared process look for their certificates, by the name of the secret."""
    found = {
        names.API_SERVER_CERTIFICATE: ("cdi_api_certificates", paths.CDI_API_CERTIFICATES),
        names.UPLOAD_PROXY_CERTIFICATE: (
            "cdi_upload_proxy_certificates",
            paths.CDI_UPLOAD_PROXY_CERTIFICATES,
        ),
        names.UPLOAD_CLIENT_CERTIFICATE: (
            "cdi_upload_client_certificates",
            paths.CDI_UPLOAD_CLIENT_CERTIFICATES,
        ),
    }
    return {secret: Path(context.settings.get(setting) or path) for secret, (setting, path) in found.items()}


def _nothing_to_wait_for() -> bool:
    """Components in pods of their own report through their Deployments."""
    return True


class CdiOperator:
    """Installs CDI for the CDI object, and in the compact layout runs its components too."""

    name = names.OPERATOR

    async def run(self, context: Context) -> None:
        """Run until cancelled."""
        client = context.client(self.name)
        settings = settings_of(context)
        ready = Gauge(
            "kubevirt_cdi_cr_ready",
            "CDI install ready",
            registry=context.registry,
        )
        ready.set(-1)
        watcher = Manager(client)
        elector = LeaderElector(client, LEASE, context.namespace, context.identity or self.name)
        is_ready: Callable[[], bool] = _nothing_to_wait_for
        if settings.is_compact:
            # Its modules are loaded by those who need them.
            from virtplane.operators.cdi.compact import SharedProcess  # noqa: PLC0415

            shared = SharedProcess(context, certificate_directories(context), verbosity=settings.verbosity)
            is_ready = shared.is_ready
            watcher.add_runnable("cdi-shared-process", lambda: shared.run(Manager(client)))
        watcher.add_runnable(
            "cdi-leader", lambda: elector.lead(lambda: self._lead(context, settings, ready, is_ready))
        )
        await watcher.run()

    async def _lead(
        self, context: Context, settings: Settings, ready: Gauge, is_ready: Callable[[], bool]
    ) -> None:
        client = context.client(self.name)
        manager = Manager(client)
        cdis = manager.informer(api.CDIS)
        wanted = asyncio.Event()
        cdis.add_handler(lambda *_: wanted.set())

        async def reconcile() -> None:
            await wanted.wait()
            # This costs memory that clusters without CDI need not spend.
            from virtplane.operators.cdi.running import run_controller  # noqa: PLC0415

            await run_controller(client, settings, ready, components_are_ready=is_ready)

        manager.add_runnable("cdi-controller", reconcile)
        await manager.run()
