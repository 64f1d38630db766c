"""The metrics by which components tell whether they are ready, whether they lead, and what they request.

Their names are KubeVirt's: ``kubevirt_virt_api_ready_status``, ``kubevirt_virt_controller_leading_status``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily

from kubecore.client import Request
from kubecore.client.counting import Count, Timed, resource_and_verb, url_template
from kubecore.runtime import LeaderElector
from kubecore.runtime.health import Health
from kubecore.runtime.latencies import Latencies
from kubecore.runtime.metrics import collected

WITH_STATES = ("virt-api", "virt-controller", "virt-handler", "virt-operator")
"""The components that KubeVirt has such metrics of."""

_TIMED = ("verb", "url")
_TOOK_LIMITS = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60),
)
_WAITED_LIMITS = tuple(0.001 * 2**power for power in range(10))
"""Seconds."""


class _State:
    """One gauge, 1 or 0 by what holds when Prometheus asks."""

    def __init__(self, name: str, text: str, holds: Callable[[], bool]) -> None:
        self._name = name
        self._text = text
        self._holds = holds

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauge as it is now."""
        yield GaugeMetricFamily(self._name, self._text, value=float(self._holds()))


@contextmanager
def state(registry: CollectorRegistry, name: str, text: str, holds: Callable[[], bool]) -> Iterator[None]:
    """The gauge `name` is in `registry` as long as this lasts."""
    with collected(registry, _State(name, text, holds)):
        yield


@contextmanager
def leading(registry: CollectorRegistry, component: str, elector: LeaderElector) -> Iterator[None]:
    """Whether this replica of `component` leads."""
    name = f"kubevirt_{_written(component)}_leading_status"
    with state(registry, name, f"Whether this {component} leads", lambda: elector.is_leader):
        yield


def add_readiness(registry: CollectorRegistry, components: Sequence[str], health: Health) -> None:
    """Add whether the process is ready, for each of its `components` that has such a metric."""
    for component in components:
        if component in WITH_STATES:
            name = f"kubevirt_{_written(component)}_ready_status"
            text = f"Whether this {component} is ready"
            registry.register(_State(name, text, lambda: health.ready()[0]))


class RequestCounts:
    """The requests to the API server, how long they took, and how long they waited for their turn."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            "kubevirt_rest_client_requests",
            "Requests to the API server by their answers",
            ("code", "method", "host", "resource", "verb"),
            registry=registry,
        )
        self._took = Latencies(
            "kubevirt_rest_client_request_latency_seconds",
            "How long requests to the API server took",
            _TIMED,
            _TOOK_LIMITS,
        )
        self._waited = Latencies(
            "kubevirt_rest_client_rate_limiter_duration_seconds",
            "How long requests to the API server waited because others had been sent",
            _TIMED,
            _WAITED_LIMITS,
        )
        registry.register(self._took)
        registry.register(self._waited)

    def took(self, server: str) -> Timed:
        """What notes how long the requests of a client of `server` took."""
        return partial(_observe, self._took, server)

    def waited(self, server: str) -> Timed:
        """What notes how long the requests of a client of `server` waited."""
        return partial(_observe, self._waited, server)

    def of(self, server: str) -> Count:
        """What counts the requests of a client of `server`, a URL."""
        host = urlsplit(server).netloc

        def count(request: Request, status: int) -> None:
            resource, verb = resource_and_verb(request)
            code = str(status) if status else "<error>"
            self._counter.labels(code, request.method, host, resource, verb).inc()

        return count


def _observe(times: Latencies, server: str, request: Request, seconds: float) -> None:
    verb = resource_and_verb(request)[1]
    times.observe((verb, server.rstrip("/") + url_template(request)), seconds)


def _written(component: str) -> str:
    return component.replace("-", "_")
