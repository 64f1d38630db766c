"""What a process takes over from the KubeVirt object at any time, without a restart.

One watch serves all components of the process, also replicas of a component that do not lead and have no
cache of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from kubecore.client.limits import RequestLimit
from kubecore.json import JsonObject
from kubecore.logs import LogLevels, on_behalf_of
from kubecore.runtime import Context, Informer
from virtplane.api.ciphers import CIPHERS
from virtplane.api.config import REQUEST_LIMITS, ClusterConfig, LastGood
from virtplane.api.kubevirt_v1.component_configuration import TokenBucketRateLimiter
from virtplane.api.resources import KUBEVIRTS
from virtplane.api.verbosity import log_level
from virtplane.profiling import Profiling
from virtplane.serving.tls import ServersTLS, TLSSettings

logger = logging.getLogger(__name__)

CONFIGURED = ("virt-operator", "virt-api", "virt-controller", "virt-handler")
"""The components that the KubeVirt object configures."""


def component_of(client: str) -> str:
    """The component to which a client belongs: ``virt-api`` for ``virt-api/webhooks``."""
    return client.partition("/")[0]


def request_limits(components: Sequence[str]) -> dict[str, RequestLimit]:
    """The limits of the clients of `components`, by the clients' names, as they are by default."""
    return {
        client: RequestLimit(limit.qps, limit.burst)
        for client, limit in REQUEST_LIMITS.items()
        if component_of(client) in components
    }


def tls_settings(config: ClusterConfig) -> TLSSettings:
    """What servers accept. Ciphers count for what is older than TLS 1.3."""
    wanted = config.configuration.tls_configuration
    if wanted is None:
        return TLSSettings()
    ciphers = tuple(CIPHERS.get(name, name) for name in wanted.ciphers)
    return TLSSettings(ciphers, wanted.min_tls_version or "")


class Reloader:
    """Watches the KubeVirt object for the components of this process. It acts as the first of them."""

    def __init__(
        self,
        components: Sequence[str],
        levels: LogLevels,
        limits: Mapping[str, RequestLimit],
        servers_tls: ServersTLS,
        profiling: Profiling | None = None,
    ) -> None:
        """`components` are some of `CONFIGURED`, at least one; `limits` are those of their clients."""
        self._profiling = profiling
        self.name = components[0]
        self._components = components
        self._levels = levels
        self._limits = limits
        self._servers_tls = servers_tls
        self._rates: dict[str, TokenBucketRateLimiter] = {}
        self._verbosities: dict[str, int] = {}

    async def run(self, context: Context) -> None:
        """Take over every change until cancelled."""
        # A client of its own: a limit that is too low must not keep the process from learning of a better
        # one.
        client = context.client(f"{self.name}/configuration")
        informer: Informer[JsonObject] = Informer(client, KUBEVIRTS, namespace=context.namespace)
        last_good = LastGood()

        def take_over(_event: str, _old: JsonObject | None, _new: JsonObject) -> None:
            self.take_over(last_good.of(next(iter(informer.list()), None)), context.node_name)

        informer.add_handler(take_over)
        await informer.run()

    def take_over(self, config: ClusterConfig, node: str) -> None:
        """Do what `config` says, as far as it changed."""
        for component in self._components:
            with on_behalf_of(component):
                self._set_verbosity(component, config.log_verbosity(component, node))

        if self._profiling is not None:
            self._profiling.allow(config.is_profiled)
        self._servers_tls.set(tls_settings(config))
        for client in self._limits:
            with on_behalf_of(component_of(client)):
                self._limit_requests(client, config.request_limit(client))

    def _set_verbosity(self, component: str, verbosity: int) -> None:
        if self._verbosities.get(component) == verbosity:
            return
        self._verbosities[component] = verbosity
        self._levels.set(component, log_level(verbosity))
        logger.info("set verbosity to %d", verbosity)

    def _limit_requests(self, client: str, rate: TokenBucketRateLimiter) -> None:
        if self._rates.get(client) == rate:
            return
        self._rates[client] = rate
        self._limits[client].set(rate.qps, rate.burst)
        logger.info(
            "setting rate limiter to %g QPS and %d Burst", rate.qps, rate.burst, extra={"client": client}
        )
