"""Streaming subresources of pods, services and nodes."""

from __future__ import annotations

import re
import ssl
from urllib.parse import quote, urlencode

from aiohttp import web

from kubecore import errors
from kubecore.destinations import Destinations
from kubecore.json import JsonObject
from kubecore.resources import NODES, PODS, SERVICES

from ..http.call import Call
from ..registry.context import ObjectReader
from ..registry.definition import ResourceDefinition, Subresource
from ..services import ServiceResolver
from ..settings import Settings
from .forward import Forwarder
from .refusals import refusal
from .rewriting import ProxyPlace
from .target import Target
from .tunnel import is_upgrade, tunnel
from .websocket_logs import is_websocket, send_as_messages

_DEFAULT_KUBELET_PORT = 10250
_PORT = re.compile(r"[0-9]{1,5}")
_STREAM_FLAGS = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
_SHARED_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")


def client_context(certificate: str, key: str, ca: str) -> ssl.SSLContext:
    """TLS towards a node or an API server; without a CA any certificate is accepted."""
    # Not the default context: without a CA it reads all authorities that the system trusts.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca:
        context.load_verify_locations(ca)
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate and key:
        context.load_cert_chain(certificate, key)
    return context


class Connectors:
    """Serves the ``connect`` subresources."""

    def __init__(
        self,
        settings: Settings,
        objects: ObjectReader,
        services: ServiceResolver,
        destinations: Destinations,
    ) -> None:
        self._objects = objects
        self._services = services
        self._destinations = destinations
        self._forwarder = Forwarder()
        self._kubelet_tls = client_context(
            str(settings.kubelet_client_cert or ""),
            str(settings.kubelet_client_key or ""),
            str(settings.kubelet_ca or ""),
        )
        self._insecure_tls = client_context("", "", "")

    async def close(self) -> None:
        """Close upstream connections."""
        await self._forwarder.close()

    @property
    def forwarder(self) -> Forwarder:
        """For other proxying parts of the server."""
        return self._forwarder

    async def connect(
        self, call: Call, definition: ResourceDefinition, subresource: Subresource
    ) -> web.StreamResponse:
        """Serve a request for a streaming subresource. Raises StatusError."""
        plural, name = definition.resource.plural, subresource.name
        if name == "proxy":
            return await self._proxy(call, plural)
        if call.info.verb not in ("get", "create") or call.info.verb not in subresource.verbs:
            raise errors.method_not_allowed()
        pod = self._pod(call)
        if name == "log":
            return await self._log(call, pod)
        return await self._stream(call, pod, name)

    # --- pods through their node

    def _pod(self, call: Call) -> JsonObject:
        pod = self._objects.get(PODS, call.info.namespace, call.info.name)
        if pod is None:
            raise errors.not_found(PODS, call.info.name)
        return pod

    def _container(self, call: Call, pod: JsonObject) -> str:
        spec = pod.get("spec") or {}
        regular = [str(container["name"]) for container in spec.get("containers") or ()]
        init = [str(container["name"]) for container in spec.get("initContainers") or ()]
        ephemeral = [str(container["name"]) for container in spec.get("ephemeralContainers") or ()]
        wanted = call.query.get("container", "")
        name = call.info.name
        if wanted:
            if wanted not in (*regular, *init, *ephemeral):
                raise errors.bad_request(f"container {wanted} is not valid for pod {name}")
            return wanted
        annotations = (pod.get("metadata") or {}).get("annotations") or {}
        chosen = str(annotations.get("kubectl.kubernetes.io/default-container") or "")
        if chosen in regular:
            return chosen
        if len(regular) == 1:
            return regular[0]
        message = f"a container name must be specified for pod {name}, choose one of: [{' '.join(regular)}]"
        if init:
            message += f" or one of the init containers: [{' '.join(init)}]"
        raise errors.bad_request(message)

    async def _node_target(self, node_name: str, path: str) -> Target:
        """The kubelet of a node, whose certificate must carry the node's name. Raises StatusError."""
        node = self._objects.get(NODES, None, node_name)
        if node is None:
            raise errors.not_found(NODES, node_name)
        status = node.get("status") or {}
        # Of several addresses of a type, the first is the one of the primary family.
        entries = reversed(status.get("addresses") or ())
        addresses = {entry.get("type"): entry.get("address") for entry in entries}
        host = addresses.get("InternalIP") or addresses.get("Hostname")
        if not host:
            raise errors.internal(f"no preferred addresses found; known addresses: {sorted(addresses)}")
        endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
        port = int(endpoint.get("Port") or _DEFAULT_KUBELET_PORT)
        return Target(await self._admitted(str(host)), port, path, self._kubelet_tls, node_name)

    async def _admitted(self, host: str) -> str:
        """The address of `host`. Raises StatusError (400, 503)."""
        try:
            return await self._destinations.resolve(host)
        except OSError as error:
            raise errors.service_unavailable(f"error trying to reach service: {error}") from error

    async def _of_pod(self, call: Call, pod: JsonObject, area: str, container: str, query: str) -> Target:
        node = str((pod.get("spec") or {}).get("nodeName") or "")
        if not node:
            raise errors.bad_request(f"pod {call.info.name} does not have a host assigned")
        parts = [area, call.info.namespace, call.info.name, *([container] if container else [])]
        path = "/" + "/".join(quote(part, safe="") for part in parts)
        return await self._node_target(node, f"{path}?{query}" if query else path)

    async def _log(self, call: Call, pod: JsonObject) -> web.StreamResponse:
        container = self._container(call, pod)
        pairs = [(key, value) for key, value in call.query.items() if key != "container"]
        if not (pod.get("spec") or {}).get("nodeName"):
            # Not scheduled yet: there is nothing to read.
            return web.Response(status=204)
        target = await self._of_pod(call, pod, "containerLogs", container, urlencode(pairs))
        async with self._forwarder.open(target) as upstream:
            if upstream.status != 200:
                raise await refusal(upstream, "pods/log", call.info.name)
            if is_websocket(call.request):
                return await send_as_messages(call.request, upstream)
            return await self._forwarder.pass_on(call.request, upstream)

    async def _stream(self, call: Call, pod: JsonObject, name: str) -> web.StreamResponse:
        query = call.query
        if name == "portforward":
            ports = [("port", value) for value in query.getall("ports", [])]
            target = await self._of_pod(call, pod, "portForward", "", urlencode(ports))
        else:
            container = self._container(call, pod)
            pairs = [("command", value) for value in query.getall("command", [])] if name == "exec" else []
            pairs += [(theirs, "1") for ours, theirs in _STREAM_FLAGS.items() if call.flag(ours)]
            target = await self._of_pod(call, pod, name, container, urlencode(pairs))
        if not is_upgrade(call.request):
            raise errors.bad_request("Upgrade request required")
        return await tunnel(call.request, target)

    # --- plain HTTP to pods, services and nodes

    async def _proxy(self, call: Call, plural: str) -> web.StreamResponse:
        if call.info.method not in _SHARED_METHODS:
            raise errors.method_not_allowed()
        scheme, name, port = _split_name(call.info.name)
        prefix, rest = call.info.at_subresource()
        raw_query = call.request.rel_url.raw_query_string
        query = f"?{raw_query}" if raw_query else ""
        path = (rest or "/") + query
        if plural == "nodes":
            target = await self._node_target(name, path)
            if port and _number(port) != target.port:
                # Do not send the kubelet's credentials: another program could listen at that address.
                target = Target(target.host, _number(port), path)
        elif plural == "pods":
            target = await self._proxied_pod(call, name, port, path)
        else:
            target = await self._proxied_service(call, name, port, path)
        if scheme == "https" and target.tls is None:
            target.tls = self._insecure_tls
        if is_upgrade(call.request):
            return await tunnel(call.request, target)
        if not rest and call.info.method in ("GET", "HEAD"):
            # Relative links of the page would lose the last part of the path.
            return web.Response(status=301, headers={"Location": f"{prefix}/{query}"})
        place = ProxyPlace(prefix, f"{target.host}:{target.port}")
        return await self._forwarder.forward(call.request, target, place=place)

    async def _proxied_pod(self, call: Call, name: str, port: str, path: str) -> Target:
        pod = self._objects.get(PODS, call.info.namespace, name)
        if pod is None:
            raise errors.not_found(PODS, name)
        address = (pod.get("status") or {}).get("podIP")
        if not address:
            raise errors.bad_request("address not allowed")
        if not port:
            containers = (pod.get("spec") or {}).get("containers") or ()
            declared = [entry for container in containers for entry in container.get("ports") or ()]
            port = str(declared[0]["containerPort"]) if declared else "80"
        return Target(await self._admitted(str(address)), _number(port), path)

    async def _proxied_service(self, call: Call, name: str, port: str, path: str) -> Target:
        namespace = call.info.namespace
        service = self._objects.get(SERVICES, namespace, name)
        if service is None:
            raise errors.not_found(SERVICES, name)
        ports = (service.get("spec") or {}).get("ports") or []
        if not port and len(ports) == 1:
            found = ports[0]
        else:
            matching = [entry for entry in ports if port in (str(entry.get("port")), entry.get("name"))]
            if not matching:
                raise errors.service_unavailable(f'no service port "{port}" found for service "{name}"')
            found = matching[0]
        if (service.get("spec") or {}).get("type") == "ExternalName":
            # Do not follow the name of an ExternalName service: it could be any host that this server
            # reaches.
            raise errors.service_unavailable(f'no endpoints available for service "{name}"')
        endpoint = self._services.resolve(namespace, name, int(found["port"]))
        host = await self._admitted(endpoint.host)
        return Target(host, endpoint.port, path, server_name=endpoint.server_name)


def _split_name(name: str) -> tuple[str, str, str]:
    """(scheme, name, port) of ``name``, ``name:port`` or ``scheme:name:port``."""
    parts = name.split(":")
    if len(parts) == 3:
        return parts[0], parts[1], parts[2]
    if len(parts) == 2:
        return "", parts[0], parts[1]
    return "", name, ""


def _number(port: str) -> int:
    if _PORT.fullmatch(port) is None or not 0 < int(port) < 65536:
        raise errors.bad_request(f"invalid port {port!r}")
    return int(port)
