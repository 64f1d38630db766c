"""The server's metrics under the names that Kubernetes' API server uses."""

from __future__ import annotations

import platform

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from kubecore.runtime.metrics import CONTENT_TYPE, exposition

from ..discovery.version import MAJOR, MINOR, git_version
from ..registry.catalog import Catalog
from ..registry.definition import ResourceDefinition
from ..storage.store import Store
from .call import Call
from .request_info import RequestInfo
from .responses import Response

_BUCKETS = (
    0.005,
    0.025,
    0.05,
    0.1,
    0.2,
    0.4,
    0.6,
    0.8,
    1.0,
    1.25,
    1.5,
    2,
    3,
    4,
    5,
    6,
    8,
    10,
    15,
    20,
    30,
    45,
    60,
)
_VERBS = {
    "get": "GET",
    "list": "LIST",
    "watch": "WATCH",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETECOLLECTION",
}


class _StoredObjects:
    """Counts objects when metrics are read, not while they are written."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> list[Metric]:
        """See prometheus_client: stored objects by resource."""
        objects = GaugeMetricFamily(
            "apiserver_storage_objects", "Number of stored objects by resource", labels=["resource"]
        )
        for bucket in self._store.buckets():
            group, _, plural = bucket.partition("/")
            name = plural if group == "core" else f"{plural}.{group}"
            objects.add_metric([name], self._store.count(bucket))
        return [objects]


class Metrics:
    """Observes finished requests and shows everything at /metrics."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self._catalog = catalog
        self._registry = CollectorRegistry()
        labels = ("verb", "group", "version", "resource", "subresource", "scope")
        self._requests = Counter(
            "apiserver_request",
            "Counter of apiserver requests by verb, resource and response code",
            (*labels, "code"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "apiserver_request_duration_seconds",
            "Response latency by verb and resource",
            labels,
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._deprecated = Gauge(
            "apiserver_requested_deprecated_apis",
            "Gauge of deprecated APIs that have been requested",
            ("group", "version", "resource", "subresource", "removed_release"),
            registry=self._registry,
        )
        build = Gauge(
            "kubernetes_build_info",
            "A constant 1, labelled by the version",
            ("major", "minor", "git_version", "platform"),
            registry=self._registry,
        )
        build.labels(str(MAJOR), str(MINOR), git_version(), f"linux/{platform.machine()}").set(1)
        self._registry.register(_StoredObjects(store))
        GCCollector(self._registry)
        PlatformCollector(self._registry)
        ProcessCollector(registry=self._registry)
        self._children: dict[tuple[str, ...], Histogram] = {}

    def observe(self, call: Call, status: int, seconds: float) -> None:
        """Count a finished request."""
        info = call.info
        definition = self._definition(info)
        resource = _resource_labels(info, definition)
        if definition is not None and definition.deprecation_warning:
            self._deprecated.labels(*resource[:4], "").set(1)
        labels = (_VERBS.get(info.verb, call.request.method), *resource)
        self._requests.labels(*labels, str(status)).inc()
        if info.verb != "watch":
            child = self._children.get(labels)
            if child is None:
                child = self._children[labels] = self._seconds.labels(*labels)
            child.observe(seconds)

    def _definition(self, info: RequestInfo) -> ResourceDefinition | None:
        return self._catalog.find(info.group, info.version, info.resource) if info.is_resource else None

    async def page(self, call: Call) -> Response:
        """The text that Prometheus reads."""
        return Response(200, exposition(self._registry), CONTENT_TYPE)


def _resource_labels(info: RequestInfo, definition: ResourceDefinition | None) -> tuple[str, ...]:
    """Metric labels of a served resource; other paths must not create new time series."""
    if not info.is_resource:
        return "", "", "", "", "cluster"
    scope = "resource" if info.name else "namespace" if info.namespace else "cluster"
    if definition is None:
        return "", "", "", "", scope
    subresource = info.subresource if info.subresource in definition.subresources else ""
    return info.group, info.version, info.resource, subresource, scope
