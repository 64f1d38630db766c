"""hostpath-provisioner-operator: the component.

It serves its webhook and does nothing else until there is a HostPathProvisioner; what it needs to reconcile
one is loaded then.
"""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import timedelta

from prometheus_client import Gauge

from kubecore import errors, resources
from kubecore.certificates import Lifetime, Lifetimes, pair_of, utc_now
from kubecore.client import Client, ConnectionFailed
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta
from kubecore.runtime import LeaderElector, Manager
from kubecore.runtime.component import Context
from virtplane import __version__
from virtplane.api import ports
from virtplane.api import resources as api
from virtplane.api.paths import KUBELET_ROOT
from virtplane.operators.hostpath.manifests import CERTIFICATES, SECRET, webhook_configuration
from virtplane.operators.hostpath.product import HOSTPATH, OPERATOR, Settings
from virtplane.operators.hostpath.reviews import review
from virtplane.operators.kit import certificates
from virtplane.operators.kit.apply import Applier
from virtplane.operators.webhookserver import WebhookServer
from virtplane.serving.frontproxy import REQUIRE_WEBHOOK_CERTIFICATE

logger = logging.getLogger(__name__)

LEASE = "hostpath-provisioner-operator-lock"
_LIFETIMES = Lifetimes(
    Lifetime(timedelta(days=365), timedelta(days=60)), Lifetime(timedelta(days=30), timedelta(days=10))
)
_CHECK_SECONDS = 3600.0
_RETRY_SECONDS = 2.0


def settings_of(context: Context) -> Settings:
    """The operator's settings, of the process and of upstream's environment variables."""
    runbook = os.environ.get("RUNBOOK_URL_TEMPLATE", "")
    default = Settings("", "", "", "")
    verbosity = os.environ.get("VERBOSITY", "")
    return Settings(
        namespace=context.namespace,
        image=str(context.settings.get("image") or ""),
        layout=str(context.settings.get("layout") or "distributed"),
        version=f"v{__version__}",
        kubelet_root=str(context.settings.get("kubelet_root") or KUBELET_ROOT),
        monitoring_namespace=os.environ.get("MONITORING_NAMESPACE") or default.monitoring_namespace,
        runbook_url=runbook if runbook.count("%s") == 1 else default.runbook_url,
        part_of=os.environ.get("INSTALLER_PART_OF_LABEL", ""),
        version_label=os.environ.get("INSTALLER_VERSION_LABEL", ""),
        verbosity=int(verbosity) if verbosity.isdecimal() else default.verbosity,
    )


class HostPathOperator:
    """Deploys the CSI driver for the HostPathProvisioner. Every replica serves the webhook."""

    name = OPERATOR

    async def run(self, context: Context) -> None:
        """Run until cancelled."""
        client = context.client(self.name)
        webhooks = WebhookServer(
            client,
            review,
            int(context.settings.get("hostpath_webhook_port", ports.HOSTPATH_WEBHOOKS)),
            requires_certificate=bool(context.settings.get(REQUIRE_WEBHOOK_CERTIFICATE)),
        )
        ready = Gauge(
            "kubevirt_hpp_cr_ready",
            "1 if the HostPathProvisioner is available, 0 if not, -1 while that is not known",
            registry=context.registry,
        )
        ready.set(-1)
        watcher = Manager(client)
        secrets = watcher.informer(
            resources.SECRETS, namespace=context.namespace, label_selector=HOSTPATH.selector
        )

        def observe(event: str, _: JsonObject | None, secret: JsonObject) -> None:
            pair = pair_of(secret) if meta.name(secret) == SECRET else None
            if event != "DELETED" and pair is not None:
                webhooks.use(pair)

        secrets.add_handler(observe)
        elector = LeaderElector(client, LEASE, context.namespace, context.identity or self.name)
        watcher.add_runnable("hostpath-webhooks", webhooks.run)
        watcher.add_runnable("hostpath-leader", lambda: elector.lead(lambda: self._lead(context, ready)))
        await watcher.run()

    async def _lead(self, context: Context, ready: Gauge) -> None:
        client, settings = context.client(self.name), settings_of(context)
        manager = Manager(client)
        hpps = manager.informer(api.HOSTPATH_PROVISIONERS)
        wanted = asyncio.Event()
        hpps.add_handler(lambda *_: wanted.set())

        async def reconcile() -> None:
            await wanted.wait()
            # This costs memory that clusters without a HostPathProvisioner need not spend.
            from virtplane.operators.hostpath.running import run_controller  # noqa: PLC0415

            await run_controller(client, settings, ready)

        manager.add_runnable("hostpath-certificates", lambda: _keep_certificates(client, settings))
        manager.add_runnable("hostpath-controller", reconcile)
        await manager.run()


async def _keep_certificates(client: Client, settings: Settings) -> None:
    """Issue and renew the webhook's certificate, and register the webhook with its authority."""
    applier = Applier(client, HOSTPATH)
    while True:
        wait = _RETRY_SECONDS
        try:
            found = await client.list(resources.SECRETS, settings.namespace, label_selector=HOSTPATH.selector)
            bundles = await client.list(
                resources.CONFIG_MAPS, settings.namespace, label_selector=HOSTPATH.selector
            )
            now = utc_now()
            plan = certificates.plan(
                CERTIFICATES,
                {meta.name(each): each for each in found.get("items") or []},
                {
                    meta.name(each): get_str(each, "data", certificates.BUNDLE_KEY)
                    for each in bundles.get("items") or []
                },
                settings.namespace,
                _LIFETIMES,
                now,
            )
            for document in (*plan.secrets, *plan.bundles):
                document["metadata"]["labels"] = settings.labels()
                await applier.apply(document)
            await applier.apply(webhook_configuration(settings, plan.ca_bundle))
            wait = min(_CHECK_SECONDS, max(1.0, (plan.next_renewal - now).total_seconds()))
        except (errors.StatusError, ConnectionFailed) as error:
            logger.warning("the webhook's certificate cannot be written, trying again: %s", error)
        await asyncio.sleep(wait)
