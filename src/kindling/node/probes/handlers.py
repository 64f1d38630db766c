"""Running the handlers of probes and hooks: commands, HTTP requests, TCP connections, gRPC health checks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp
from yarl import URL

from kindling.node.probes.host_names import HostNames, ResolverOf
from kindling.node.runtime.containerd import Containerd
from kindling.node.runtime.interface import RuntimeFailure
from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.wire import build_interface

_MAX_OUTPUT = 10 * 1024
_MAX_HEADER_BYTES = 64 * 1024
_GRPC_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", _MAX_OUTPUT),
    ("grpc.use_local_subchannel_pool", 1),
)
_HEALTH = {
    "package": "grpc.health.v1",
    "services": {"Health": {"Check": ["HealthCheckRequest", "HealthCheckResponse"]}},
    "enums": {"ServingStatus": {"UNKNOWN": 0, "SERVING": 1, "NOT_SERVING": 2, "SERVICE_UNKNOWN": 3}},
    "messages": {
        "HealthCheckRequest": {"service": [1, "string"]},
        "HealthCheckResponse": {"status": [1, "ServingStatus"]},
    },
}


@dataclass(frozen=True, slots=True)
class Target:
    """The container whose handler is run; `address` is the pod's IP."""

    container_id: str
    container: JsonObject
    address: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a handler: whether it succeeded, and its message."""

    success: bool
    output: str = ""


async def perform(
    runtime: Containerd,
    action: JsonObject,
    target: Target,
    timeout_seconds: int,
    names: HostNames | None = None,
) -> Outcome:
    """Run the handler in `action` (exec, httpGet, tcpSocket, grpc or sleep).

    At most 10 KiB of the answer are kept, whatever the container sends. `names` is for handlers that are run
    again and again: it looks up one name of a container at a time.
    """
    names = names or HostNames()
    if "exec" in action:
        return await _exec(runtime, action["exec"], target, timeout_seconds)
    if "httpGet" in action:
        return await _http(action["httpGet"], target, timeout_seconds, names)
    if "tcpSocket" in action:
        return await _tcp(action["tcpSocket"], target, timeout_seconds, names)
    if "grpc" in action:
        return await _grpc(action["grpc"], target, timeout_seconds)
    if "sleep" in action:
        await asyncio.sleep(get_int(action, "sleep", "seconds"))
        return Outcome(True)
    return Outcome(False, "missing probe handler")


def resolve_port(port: object, container: JsonObject) -> int | None:
    """A port number, or that of the container's port of this name."""
    if isinstance(port, int):
        return port
    for item in get_list(container, "ports"):
        if item.get("name") == port:
            return get_int(item, "containerPort")
    return int(port) if isinstance(port, str) and port.isdigit() else None


async def _exec(runtime: Containerd, action: JsonObject, target: Target, timeout_seconds: int) -> Outcome:
    command = get_list(action, "command")
    try:
        done = await runtime.exec_sync(target.container_id, command, timeout_seconds)
    except RuntimeFailure as error:
        if error.code == "DEADLINE_EXCEEDED":
            return Outcome(
                False, f"command timed out: {' '.join(command)!r} timed out after {timeout_seconds}s"
            )
        return Outcome(False, str(error))
    output = (done.stdout + done.stderr)[:_MAX_OUTPUT].decode("utf-8", "replace")
    return Outcome(done.exit_code == 0, output)


async def _http(action: JsonObject, target: Target, timeout_seconds: int, names: HostNames) -> Outcome:
    port = resolve_port(action.get("port"), target.container)
    if port is None:
        return Outcome(False, f"couldn't find port: {action.get('port')}")
    host = get_str(action, "host") or target.address
    scheme = get_str(action, "scheme", default="HTTP").lower()
    path = get_str(action, "path", default="/")
    path = path if path.startswith("/") else f"/{path}"
    url = f"{scheme}://{host}:{port}{path}"
    headers = {
        "Host": f"{host}:{port}",
        "User-Agent": "kube-probe/1.36",
        "Accept": "*/*",
        "Connection": "close",
    }
    headers |= {get_str(item, "name"): get_str(item, "value") for item in get_list(action, "httpHeaders")}
    way, _, query = path.partition("?")
    try:
        target_url = URL.build(
            scheme=scheme, host=host, port=port, path=way, query_string=query, encoded=True
        )
        async with asyncio.timeout(timeout_seconds):
            code, body = await _get(target_url, headers, ResolverOf(names, target.container_id))
    except TimeoutError:
        waiting = "(Client.Timeout exceeded while awaiting headers)"
        return Outcome(False, f'Get "{url}": context deadline exceeded {waiting}')
    except OSError as error:
        found = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
        reason = "connection refused" if isinstance(found, ConnectionRefusedError) else str(found)
        return Outcome(False, f'Get "{url}": dial tcp {host}:{port}: connect: {reason}')
    except aiohttp.ClientError:
        problem = "HTTP/1.x transport connection broken: malformed HTTP response"
        return Outcome(False, f'Get "{url}": net/http: {problem}')
    except ValueError as error:
        return Outcome(False, f'Get "{url}": {error}')
    if 200 <= code < 400:
        return Outcome(True, body)
    return Outcome(False, f"HTTP probe failed with statuscode: {code}")


async def _get(url: URL, headers: Mapping[str, str], resolver: ResolverOf) -> tuple[int, str]:
    """The status, and the first part of the body. Raises OSError, ClientError, ValueError."""
    async with (
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=False, force_close=True, resolver=resolver),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(),
            auto_decompress=False,
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
        ) as session,
        session.get(
            url, headers=headers, allow_redirects=False, skip_auto_headers=("Accept-Encoding",)
        ) as response,
    ):
        body = b""
        with contextlib.suppress(aiohttp.ClientPayloadError):
            while len(body) < _MAX_OUTPUT and (data := await response.content.read(_MAX_OUTPUT - len(body))):
                body += data
        return response.status, body.decode("utf-8", "replace")


async def _tcp(action: JsonObject, target: Target, timeout_seconds: int, names: HostNames) -> Outcome:
    port = resolve_port(action.get("port"), target.container)
    if port is None:
        return Outcome(False, f"couldn't find port: {action.get('port')}")
    host = get_str(action, "host") or target.address
    try:
        async with asyncio.timeout(timeout_seconds):
            await _connect(await names.find(target.container_id, host), port)
    except TimeoutError:
        return Outcome(False, f"dial tcp {host}:{port}: i/o timeout")
    except OSError as error:
        reason = "connection refused" if isinstance(error, ConnectionRefusedError) else str(error)
        return Outcome(False, f"dial tcp {host}:{port}: connect: {reason}")
    return Outcome(True)


async def _connect(places: Sequence[tuple[int, str]], port: int) -> None:
    """Connect to the first of these addresses that accepts it. Raises OSError."""
    for index, (_, address) in enumerate(places, start=1):
        try:
            _, writer = await asyncio.open_connection(address, port)
        except OSError:
            if index == len(places):
                raise
        else:
            writer.close()
            return


async def _grpc(action: JsonObject, target: Target, timeout_seconds: int) -> Outcome:
    import grpc  # noqa: PLC0415 - loaded already by the runtime's client; keeps pure tests light
    import grpc.aio  # noqa: PLC0415

    address = f"{target.address}:{get_int(action, 'port')}"
    health = build_interface("grpc-health-v1", _HEALTH)
    async with grpc.aio.insecure_channel(address, options=_GRPC_OPTIONS) as channel:
        check = health.stub(channel, "Health")["Check"]
        request = health.message("HealthCheckRequest", {"service": get_str(action, "service")})
        try:
            answer = await check(request, timeout=timeout_seconds)
        except grpc.aio.AioRpcError as error:
            return Outcome(False, f"error: health rpc probe failed: {error.details()}")
    if answer.status == 1:
        return Outcome(True)
    return Outcome(False, f"service unhealthy (responded with {answer.status})")


def handler_of(container: JsonObject, *path: str) -> JsonObject | None:
    """The handler at `path` of a container; None if it has none."""
    found = get_object(container, *path)
    return found or None
