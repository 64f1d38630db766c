"""All plugins in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kindling.apiserver.registry.admission import Admission, AdmissionAttributes, AdmissionEnvironment
from kindling.apiserver.settings import Settings
from kindling.network.external import ExternalRanges

from .certificates import Certificates
from .external_addresses import ExternalAddresses
from .ingress_class import DefaultIngressClass
from .limit_ranger import LimitRanger
from .mutating_policies import MutatingPolicies
from .namespaces import NamespaceLifecycle
from .node_restriction import NodeRestriction
from .pod_security.plugin import PodSecurity
from .priority import Priority
from .quota import ResourceQuota
from .reinvocation import Reinvocation
from .reserved_images import ReservedImages
from .runtime_class import RuntimeClass
from .service_accounts import ServiceAccounts
from .storage import ClaimResize, DefaultStorageClass, StorageProtection
from .tolerations import DefaultTolerations
from .type_checking import TypeChecking
from .validating_policies import ValidatingPolicies
from .webhook_client import WebhookClient
from .webhooks import MutatingWebhooks, ValidatingWebhooks


@dataclass(frozen=True, slots=True)
class ClusterRules:
    """Restrictions that the administrator of the cluster configures: see `ExternalRanges` and
    `ReservedImages`.
    """

    external: ExternalRanges = field(default_factory=ExternalRanges)
    reserved_images: tuple[str, ...] = ()
    reserved_image_accounts: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> ClusterRules:
        """The restrictions in the server's settings. Raises ValueError for invalid ranges."""
        own = (settings.cluster_cidr or settings.service_cidr).split(",")
        external = ExternalRanges.of(settings.external_ranges, own)
        return cls(external, settings.reserved_images, settings.reserved_image_accounts)


class Chain(Admission):
    """All plugins in their order. Mutating plugins run again when a later one changed what they had seen."""

    def __init__(self, plugins: Sequence[Admission]) -> None:
        self._plugins = plugins

    async def mutate(self, attributes: AdmissionAttributes) -> None:
        """See AdmissionChain."""
        reinvocation = Reinvocation()
        await self._mutate_once(attributes, reinvocation)
        if reinvocation.is_wanted:
            reinvocation.is_second_round = True
            await self._mutate_once(attributes, reinvocation)

    async def _mutate_once(self, attributes: AdmissionAttributes, reinvocation: Reinvocation) -> None:
        for plugin in self._plugins:
            if isinstance(plugin, (MutatingWebhooks, MutatingPolicies)):
                await plugin.mutate_round(attributes, reinvocation)
            else:
                await plugin.mutate(attributes)

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """See AdmissionChain."""
        for plugin in self._plugins:
            await plugin.validate(attributes)


def build_chain(
    environment: AdmissionEnvironment,
    client: WebhookClient | None = None,
    rules: ClusterRules | None = None,
) -> Chain:
    """Create the chain of a server. `client` is shared with conversion webhooks if given."""
    calls = client or WebhookClient(environment.resolve_service)
    rules = rules or ClusterRules()
    TypeChecking(environment)
    plugins: list[Admission] = [
        NamespaceLifecycle(environment.objects),
        LimitRanger(environment.objects),
        ServiceAccounts(environment.objects),
        NodeRestriction(environment.objects),
        PodSecurity(environment.objects),
        Priority(environment.objects),
        DefaultTolerations(),
        RuntimeClass(environment.objects),
        DefaultStorageClass(environment.objects),
        StorageProtection(),
        ClaimResize(environment.objects),
        Certificates(environment),
        DefaultIngressClass(environment.objects),
        MutatingPolicies(environment),
        MutatingWebhooks(environment, calls),
        ReservedImages(rules.reserved_images, rules.reserved_image_accounts),
        ExternalAddresses(rules.external, environment.objects),
        ValidatingPolicies(environment),
        ValidatingWebhooks(environment, calls),
        ResourceQuota(environment.objects),
    ]
    return Chain(plugins)
