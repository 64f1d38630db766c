"""virt-operator: the component."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import cast

from kubecore import resources
from kubecore.certificates import pair_of, utc_now
from kubecore.json import JsonObject, get_bool
from kubecore.objects import meta
from kubecore.runtime import Controller, LeaderElector, Manager
from kubecore.runtime.component import CannotRun, Context
from kubecore.sharing import with_shared_parts
from virtplane import __version__
from virtplane.api import ports
from virtplane.api import resources as api
from virtplane.api.images import SIDECAR_IMAGE
from virtplane.api.paths import KUBELET_ROOT
from virtplane.operators.kit.apply import BUILT_IN
from virtplane.operators.kit.mirror import CertificateMirror
from virtplane.operators.kubevirt.certificates import OPERATOR_SECRET
from virtplane.operators.kubevirt.controller import Caches, KubeVirtController, Settings, kubevirt_keys
from virtplane.operators.kubevirt.product import KUBEVIRT
from virtplane.operators.kubevirt.strategy.alerts import DEFAULT_RUNBOOK_URL
from virtplane.operators.kubevirt.strategy.parameters import Layout
from virtplane.operators.kubevirt.strategy.workloads import GUESTFS_IMAGE, MIRRORED_CERTIFICATES
from virtplane.operators.kubevirt.webhooks import KubeVirtReviews
from virtplane.operators.webhookserver import WebhookServer
from virtplane.serving.frontproxy import REQUIRE_WEBHOOK_CERTIFICATE
from virtplane.serving.tls import ServersTLS
from virtplane.states import leading, state

logger = logging.getLogger(__name__)

LEASE = "virt-operator"
_RUNBOOKS = "RUNBOOK_URL_TEMPLATE"
EMULATION = "kubevirt_configuration_emulation_enabled"
_NAMESPACED_KINDS = ("Secret", "ConfigMap", "Service", "ServiceAccount", "Deployment", "DaemonSet")


def installed_version() -> str:
    """The version of this product in status fields."""
    return f"v{__version__}"


class VirtOperator:
    """Installs KubeVirt's components, keeps them as they should be, and guards the KubeVirt object.

    Every replica serves the webhooks and mirrors certificates for components that share its process; the
    leader reconciles.
    """

    name = "virt-operator"

    async def run(self, context: Context) -> None:
        """Run until cancelled."""
        client = context.client(self.name)
        compact = context.settings.get("layout") == "compact"
        gate = context.settings.get("components_may_start")
        mirror = CertificateMirror(MIRRORED_CERTIFICATES if compact else {})
        webhooks = WebhookServer(
            client,
            KubeVirtReviews(client).review,
            port=int(context.settings.get("operator_webhook_port", ports.OPERATOR_WEBHOOKS)),
            requires_certificate=bool(context.settings.get(REQUIRE_WEBHOOK_CERTIFICATE)),
            servers_tls=ServersTLS.of(context),
        )
        context.health.add_ready("webhooks", lambda: "" if webhooks.is_serving else "no certificate yet")
        watcher = Manager(client)
        secrets = watcher.informer(
            resources.SECRETS, namespace=context.namespace, label_selector=KUBEVIRT.selector
        )

        def observe(event: str, _: JsonObject | None, secret: JsonObject) -> None:
            if event == "DELETED":
                return
            mirror.observe(secret)
            if meta.name(secret) == OPERATOR_SECRET:
                pair = pair_of(secret)
                if pair is not None:
                    webhooks.use(pair)

        secrets.add_handler(observe)
        elector = LeaderElector(client, LEASE, context.namespace, context.identity or self.name)
        watcher.add_runnable("operator-webhooks", webhooks.run)
        watcher.add_runnable("operator-leader", lambda: elector.lead(lambda: self._lead(context)))
        if isinstance(gate, asyncio.Event):
            watcher.add_runnable("operator-gate", lambda: _open(mirror, gate))
        with leading(context.registry, self.name, elector):
            await watcher.run()

    async def _lead(self, context: Context) -> None:
        client = context.client(self.name)
        manager = Manager(client, queues=context.queues)
        kubevirts = manager.informer(api.KUBEVIRTS)
        managed = {
            resource: manager.informer(
                resource,
                namespace=context.namespace if resource.kind in _NAMESPACED_KINDS else None,
                label_selector=KUBEVIRT.selector,
                transform=with_shared_parts,
            )
            for resource in BUILT_IN
        }
        nodes = manager.informer(resources.NODES)
        settings = Settings(
            namespace=context.namespace,
            image=str(context.settings.get("image") or ""),
            layout=cast(Layout, context.settings.get("layout") or "distributed"),
            version=installed_version(),
            kubelet_root=str(context.settings.get("kubelet_root") or KUBELET_ROOT),
            require_webhook_certificate=bool(context.settings.get(REQUIRE_WEBHOOK_CERTIFICATE)),
            runbook_url=runbook_url(os.environ.get(_RUNBOOKS, "")),
            guestfs_image=os.environ.get(GUESTFS_IMAGE, ""),
            sidecar_image=os.environ.get(SIDECAR_IMAGE, ""),
        )
        # In the compact layout the control plane is this process: it is ready when its components are.
        compact = settings.layout == "compact"
        reconciler = KubeVirtController(
            client,
            Caches(kubevirts, nodes, managed),
            settings,
            now=utc_now,
            is_ready=(lambda: context.health.ready()[0]) if compact else (lambda: True),
        )
        controller = Controller("virt-operator", reconciler.reconcile, max_delay=30.0)
        controller.watch(kubevirts)
        every_object = kubevirt_keys(kubevirts)
        for informer in managed.values():
            controller.watch(informer, every_object)
        controller.depend(nodes)
        manager.add(controller)
        text = "Whether guests may run without KVM"
        with state(context.registry, EMULATION, text, lambda: is_emulating(kubevirts.list())):
            await manager.run()


def runbook_url(template: str) -> str:
    """Where alerts are explained, by the environment's `template`. Raises CannotRun if it makes no sense."""
    if template and template.count("%s") != 1:
        raise CannotRun(f"the environment variable {_RUNBOOKS} must contain one %s, and is {template!r}")
    return template or DEFAULT_RUNBOOK_URL


def is_emulating(kubevirts: Sequence[JsonObject]) -> bool:
    """Whether the installation lets guests run without KVM."""
    settings = ("spec", "configuration", "developerConfiguration", "useEmulation")
    return any(get_bool(kubevirt, *settings) for kubevirt in kubevirts)


async def _open(mirror: CertificateMirror, gate: asyncio.Event) -> None:
    """Start the other components of this process once their certificates exist."""
    await mirror.complete.wait()
    gate.set()
    await asyncio.Event().wait()
