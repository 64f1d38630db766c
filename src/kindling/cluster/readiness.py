"""Whether a cluster is ready, checked over its API with the standard library only."""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path
from typing import Any

import orjson

from kindling.apiserver.storage.journal import STORAGE_REFUSED
from kindling.cluster import processes, supervisor
from kindling.cluster.instance import Instance, NodeLayout
from kindling.metrics import manifests as metrics
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.resources import API_SERVICES


def get(instance: Instance, path: str) -> tuple[int, Any]:
    """Status and body of a GET as administrator; status 0 if the server cannot be reached."""
    return request(instance, "GET", path)


def request(
    instance: Instance, method: str, path: str, document: JsonObject | None = None
) -> tuple[int, Any]:
    """Status and body of a request as administrator; status 0 if the server cannot be reached."""
    context = ssl.create_default_context(cafile=str(instance.pki / "ca.crt"))
    context.load_cert_chain(instance.pki / "admin.crt", instance.pki / "admin.key")
    connection = http.client.HTTPSConnection("127.0.0.1", instance.api_port, timeout=5, context=context)
    try:
        body = orjson.dumps(document) if document is not None else None
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
    except (OSError, http.client.HTTPException):
        return 0, None
    finally:
        connection.close()
    try:
        return answer.status, orjson.loads(content)
    except orjson.JSONDecodeError:
        return answer.status, content.decode("utf-8", "replace")


def missing_parts(instance: Instance) -> str:
    """What is not ready yet, as text for users; empty when everything is. Stopped and isolated nodes need not
    be ready.
    """
    if names := supervisor.outdated(instance.id, processes.specs(instance)):
        return f"{', '.join(names)} with the new settings"
    status, _ = get(instance, "/readyz")
    if status != 200:
        return "the API server"
    _, nodes = get(instance, "/api/v1/nodes")
    ready = {get_str(node, "metadata", "name") for node in get_list(nodes, "items") if is_ready(node)}
    wanted = [node for node in instance.running_nodes() if node.name not in instance.isolated_nodes]
    waiting = [node.name for node in wanted if node.name not in ready or not _has_agent(node)]
    if waiting:
        return "node " + ", ".join(waiting)
    status, _ = get(instance, "/api/v1/namespaces/default/serviceaccounts/default")
    if status != 200:
        return "the controllers"
    status, api_service = get(instance, API_SERVICES.path(name=metrics.API_SERVICE))
    own = metrics.OWN_LABEL.items() <= get_object(api_service, "metadata", "labels").items()
    if status == 200 and own and not is_true(api_service, "Available"):
        return "the metrics API"
    return ""


def refusal(log: Path, since: int) -> str:
    """The reason that the API server logged last for not starting with the stored data, or nothing.

    The first `since` bytes of the log are ignored.
    """
    try:
        with log.open("rb") as stream:
            stream.seek(since)
            lines = stream.read().splitlines()
        record = orjson.loads(lines[-1])
    except (OSError, IndexError, orjson.JSONDecodeError):
        return ""
    return get_str(record, "err") if get_str(record, "msg") == STORAGE_REFUSED else ""


def _has_agent(node: NodeLayout) -> bool:
    """Whether the agent that runs now has reported the status; the status may be from an earlier one."""
    try:
        pid = node.registered.read_text()
        return f"\0{node.name}\0" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def is_ready(obj: dict[str, Any]) -> bool:
    """Whether an object's Ready condition is true."""
    return is_true(obj, "Ready")


def is_true(obj: dict[str, Any], condition: str) -> bool:
    """Whether an object's condition is true."""
    conditions = get_list(obj, "status", "conditions")
    return any(item.get("type") == condition and item.get("status") == "True" for item in conditions)
