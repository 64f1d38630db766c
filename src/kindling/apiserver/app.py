"""The API server: creates, starts and stops its parts in order."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path

from kubecore.destinations import Destinations
from kubecore.json import JsonObject
from kubecore.resources import SERVICES

from ..listener import Listener
from .admission.chain import ClusterRules, build_chain
from .admission.webhook_client import WebhookClient
from .auth import rbac
from .auth.authentication import Authenticator, FrontProxy, load_token_file
from .auth.authorizer import Authorizer
from .auth.escalation import EscalationCheck
from .auth.impersonation import Impersonator
from .auth.keys import load_or_create_key
from .auth.reviews import Reviews
from .auth.service_accounts import TokenAuthority
from .auth.token_requests import TokenRequests
from .bootstrap import objects as bootstrap_objects
from .bootstrap.local_groups import LocalGroups
from .bootstrap.start import Bootstrap
from .changes import ChangeFeed
from .crds.controller import CustomResources
from .crds.strategy import definition as custom_resource_definition
from .discovery.health import Health
from .discovery.openapi import OpenApi
from .discovery.pages import Discovery
from .event_expiry import EventExpiry
from .http import tls
from .http.audit import AuditLog
from .http.metrics import Metrics
from .http.protocols import HttpServer
from .http.resources import ResourceApi
from .http.server import RequestServer, Routes
from .kinds.events import PREFIX as EVENTS_BUCKET
from .kinds.schemas.builtin import builtin_schemas
from .pages import Pages
from .proxying.api_services import AggregatedApis
from .proxying.connectors import Connectors
from .proxying.remote_openapis import RemoteOpenApis
from .registry.addresses import AddressPool
from .registry.admission import Admission, AdmissionAttributes, AdmissionEnvironment
from .registry.catalog import Catalog
from .registry.definition import ResourceDefinition, Subresource
from .registry.objects import ServerObjects
from .registry.registry import Registry
from .service_addresses import ServiceAddresses
from .services import ServiceResolver
from .settings import Settings
from .storage.compaction import Compactor
from .storage.journal import Journal
from .storage.memory import MemoryJournal
from .storage.sqlite import SqliteJournal
from .storage.store import Store

_LOG = logging.getLogger(__name__)
_IDLE_SECONDS = 120.0
_MAX_HEAD_LINE_BYTES = 32 * 1024
_DESTINATIONS = Destinations()


class ApiServer:
    """One API server. Make it, ``await start()``, ``await stop()``.

    `destinations` says where its proxies may connect to for users.
    """

    def __init__(
        self,
        settings: Settings,
        definitions: Iterable[ResourceDefinition],
        destinations: Destinations = _DESTINATIONS,
    ) -> None:
        self.settings = settings
        self._destinations = destinations
        self.port = settings.port
        self.ready = False
        journal: Journal = SqliteJournal(settings.storage) if settings.storage else MemoryJournal()
        self.store = Store(journal)
        self.catalog = Catalog()
        self.addresses = AddressPool(settings.service_cidr, settings.node_ports)
        self.registry = Registry(self.store, self.catalog, self.addresses, settings.namespace_bytes)
        self.objects = ServerObjects(self.registry)
        self.feed = ChangeFeed(self.store)
        self.services = ServiceResolver(self.objects)
        self.service_addresses = ServiceAddresses(self.objects)
        shown = (settings.proxy_client_cert, settings.proxy_client_key)
        self.webhooks = WebhookClient(
            self.services.resolve, (shown[0], shown[1]) if shown[0] and shown[1] else None
        )
        self._build_auth()
        self.catalog.replace("built-in", self._complete(list(definitions)))
        self._build_pages()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: Listener | None = None
        self._tls: ssl.SSLContext | None = None
        self._http: HttpServer | None = None
        self._audit: AuditLog | None = None

    def _build_auth(self) -> None:
        settings = self.settings
        keys = [path.read_bytes() for path in settings.service_account_keys]
        if not keys and settings.storage is not None:
            keys = [load_or_create_key(settings.storage.parent / "service-account.key")]
        self.tokens = TokenAuthority(
            keys, settings.service_account_issuer, settings.api_audiences, self.objects
        )
        self.authenticator = Authenticator(token_checks=[self.tokens.check], anonymous=settings.anonymous)
        if settings.token_file is not None:
            self.authenticator.static_tokens = load_token_file(settings.token_file)
        if settings.front_proxy_ca is not None:
            issuers = tls.authority_names(settings.front_proxy_ca)
            self.authenticator.front_proxy = FrontProxy(issuers, frozenset(settings.front_proxy_names))
        self.rbac = rbac.RbacAuthorizer()
        self.authorizer = Authorizer(self.rbac, self.objects)
        self.impersonator = Impersonator(self.authorizer.authorize)
        self.reviews = Reviews(self.authorizer.authorize, self.rbac, self.authenticator, self.tokens)

    def _complete(self, definitions: list[ResourceDefinition]) -> list[ResourceDefinition]:
        """The built-in definitions and the given ones."""
        schemas = builtin_schemas()
        schema = schemas.kind("authentication.k8s.io", "v1", "TokenRequest")
        requests = TokenRequests(self.tokens, schema)
        for definition in definitions:
            if definition.resource.plural == "serviceaccounts" and not definition.resource.group:
                definition.subresources = {
                    **definition.subresources,
                    "token": Subresource(
                        "token",
                        "TokenRequest",
                        ("create",),
                        group="authentication.k8s.io",
                        version="v1",
                        action=requests.create,
                        schema=schema,
                    ),
                }
        own = [*self.reviews.definitions(schemas), custom_resource_definition()]
        return [*definitions, *own]

    def _build_pages(self) -> None:
        self.connectors = Connectors(self.settings, self.objects, self.services, self._destinations)
        self.aggregated = AggregatedApis(
            self.settings, self.objects, self.services, self.connectors.forwarder
        )
        self.local_groups = LocalGroups(self.objects, self.catalog)
        self.discovery = Discovery(self.catalog, self._address, self.aggregated.groups)
        live = {"ping": _healthy, "log": _healthy, "etcd": self._storage_problem}
        ready = {**live, "informer-sync": _healthy, "poststarthook/bootstrap-objects": self._start_problem}
        health = Health({"livez": live, "healthz": live, "readyz": {**ready, "shutdown": _healthy}})
        self.pages = Pages(health, self.discovery, self.tokens, self._address)
        self.metrics = Metrics(self.store, self.catalog)
        self.pages.add("/metrics", self.metrics.page)
        self.openapis = RemoteOpenApis(self.aggregated)
        remote = self.openapis
        described = OpenApi(
            self.catalog, builtin_schemas().published, lambda: (remote.generation, remote.all())
        )
        self.pages.add_finder(described.page)

    @property
    def url(self) -> str:
        """The base URL once started."""
        scheme = "https" if self.settings.tls_cert else "http"
        return f"{scheme}://{self.settings.bind}:{self.port}"

    def _address(self) -> str:
        return f"{self._advertised()}:{self.port}"

    def _advertised(self) -> str:
        return self.settings.advertise or outgoing_address(self.settings.bind)

    def _storage_problem(self) -> str:
        return self.store.problem

    def _start_problem(self) -> str:
        return "" if self.ready else "not finished"

    async def start(self) -> None:
        """Load the stored objects, create the objects that every cluster has, and listen. Raises
        StorageError, OSError.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        self.store.open()
        for bucket in (rbac.ROLES, rbac.CLUSTER_ROLES, rbac.ROLE_BINDINGS, rbac.CLUSTER_ROLE_BINDINGS):
            self.feed.on_change(bucket, self._role_changed(bucket))
        self._reserve_addresses()
        environment = self._environment()
        CustomResources(environment, self._serve_custom, self.webhooks).start()
        self.registry.chain = GuardedChain(
            build_chain(environment, self.webhooks, ClusterRules.of(self.settings)),
            EscalationCheck(self.rbac),
            self.service_addresses,
        )
        await self._listen()
        await self._bootstrap()
        await self.local_groups.synchronize()
        self.spawn(self.local_groups.run(), "local groups")
        self.feed.on_change("apiregistration.k8s.io/apiservices", self.aggregated.changed)
        for bucket in ("core/services", "core/endpoints", "discovery.k8s.io/endpointslices"):
            self.feed.on_change(bucket, self.aggregated.service_changed)
        self.spawn(self.aggregated.run(), "aggregated APIs")
        self.spawn(self.openapis.run(), "OpenAPI of aggregated APIs")
        if self.settings.compaction_interval_seconds > 0:
            compactor = Compactor(self.store, self.settings.compaction_interval_seconds)
            self.spawn(compactor.run(), "compaction of history")
        expiry = EventExpiry(self.store, EVENTS_BUCKET, self.settings.event_ttl_seconds)
        self.spawn(expiry.run(), "expiry of events")
        self.ready = True
        if self._listener is not None:
            self._listener.start(self._tls, self.settings.request_timeout_seconds)
        _LOG.info("Serving", extra={"address": self.settings.bind, "port": self.port})

    def _environment(self) -> AdmissionEnvironment:
        return AdmissionEnvironment(
            objects=self.objects,
            definitions=self.catalog.all,
            equivalents=self.catalog.equivalents,
            resolve_service=self.services.resolve,
            authorize=self.authorizer.authorize,
            on_change=self.feed.on_change,
            spawn=self.spawn,
        )

    def _role_changed(self, bucket: str) -> rbac.Changed:
        def changed(event: str, obj: JsonObject) -> None:
            self.rbac.changed(bucket, event, obj)

        return changed

    def _serve_custom(self, name: str, definitions: Sequence[ResourceDefinition]) -> None:
        self.catalog.replace(f"definition {name}", definitions)
        self.local_groups.changed()

    def _reserve_addresses(self) -> None:
        """Take what stored services use."""
        for service in self.objects.list(SERVICES):
            self.addresses.adopt(service)

    async def _bootstrap(self) -> None:
        settings = self.settings
        trust = bootstrap_objects.authentication_config_map(
            _text(settings.client_ca), _text(settings.front_proxy_ca), list(settings.front_proxy_names)
        )
        await Bootstrap(self.objects, self.catalog).ensure_all(
            service_address=self.addresses.first_address,
            cidrs=self.addresses.cidrs,
            address=self._advertised(),
            port=self.port,
            trust=trust,
        )
        if self.catalog.of(bootstrap_objects.IP_ADDRESSES) is not None:
            await self.service_addresses.show_all()

    async def _listen(self) -> None:
        settings = self.settings
        routes = Routes(
            ResourceApi(self.registry, self.objects, self.connectors.connect, self.authorizer.authorize),
            self.pages.find,
            self.authenticator,
            self.authorizer.authorize,
            self.impersonator.impersonate,
            self.aggregated.handler,
            [self.metrics.observe],
        )
        if settings.audit_log is not None:
            self._audit = AuditLog(settings.audit_log)
            routes.observers.append(self._audit.observe)
        self._http = HttpServer(
            RequestServer(routes).handle,
            self.registry.large_requests,
            settings.request_timeout_seconds,
            keepalive_timeout=_IDLE_SECONDS,
            access_log=None,
            # A compressed body would be a way around the limit; Kubernetes reads none either.
            auto_decompress=False,
            max_line_size=_MAX_HEAD_LINE_BYTES,
            max_field_size=_MAX_HEAD_LINE_BYTES,
        )
        if settings.tls_cert is not None and settings.tls_key is not None:
            authorities = [ca for ca in (settings.client_ca, settings.front_proxy_ca) if ca is not None]
            self._tls = tls.server_context(settings.tls_cert, settings.tls_key, authorities, [tls.HTTP2])
        self._listener = Listener(self._http.protocol, settings.bind.split(","), settings.port)
        self.spawn(self._http.drop_slow_heads(), "slow connections")
        self.port = self._listener.port

    async def stop(self) -> None:
        """Stop listening, end open requests, close the store."""
        if self._listener is not None:
            self._listener.close()
        if self._http is not None:
            self._http.end_streams()
            self._http.pre_shutdown()
            await self._http.shutdown(self.settings.shutdown_grace_seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.webhooks.close()
        await self.connectors.close()
        self.registry.large_requests.close()
        if self._audit is not None:
            await asyncio.to_thread(self._audit.close)
        await self.store.close()

    def spawn(self, work: Awaitable[None], name: str) -> None:
        """Run a coroutine as a task that the server owns; its failure is logged."""

        async def guarded() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except Exception:  # the task must not end: log every exception here
                _LOG.exception("A background task failed", extra={"task": name})

        task = asyncio.create_task(guarded(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if asyncio.iscoroutine(work):
            # Cancelled before its first step it would never have been awaited.
            task.add_done_callback(lambda _: work.close())


class GuardedChain(Admission):
    """The admission chain with the server's own parts: escalation before validation, addresses after."""

    def __init__(self, inner: Admission, escalation: EscalationCheck, addresses: ServiceAddresses) -> None:
        self._inner = inner
        self._escalation = escalation
        self._addresses = addresses

    async def mutate(self, attributes: AdmissionAttributes) -> None:
        """See Admission.mutate."""
        await self._inner.mutate(attributes)
        if attributes.object is not None:
            self._escalation.check(attributes.ctx, attributes.object, attributes.old_object)

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """See Admission.validate."""
        await self._inner.validate(attributes)
        self._addresses.follow(attributes)


def outgoing_address(bind: str) -> str:
    """`bind`, or if that is a wildcard address, the machine's address towards other hosts."""
    if not ipaddress.ip_address(bind).is_loopback and not ipaddress.ip_address(bind).is_unspecified:
        return bind
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a datagram socket sends nothing by connecting
        except OSError:
            return bind
        return str(probe.getsockname()[0])


def _healthy() -> str:
    return ""


def _text(path: Path | None) -> str:
    return path.read_text() if path is not None else ""
