"""An API server with CDI as uploads see it: objects that are kept, an upload server, and its proxy."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from .conftest import FakeServer

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes"
SOURCES = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datasources"
MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
TOKENS = "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/default/uploadtokenrequests"
CONFIG = "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config"
EVENTS = "/api/v1/namespaces/default/events"
STORAGE = "cdi.kubevirt.io/storage."


@dataclass
class CdiServer(FakeServer):
    """Objects by path. Uploads are answered by `statuses` in turn, the last of them for ever."""

    objects: dict[str, Any] = field(default_factory=dict)
    statuses: list[int] = field(default_factory=lambda: [200])
    has_async: bool = True
    loses_answer: bool = False
    """Whether the first upload is taken and its connection closed without an answer."""
    uploads: list[tuple[str, str, bytes]] = field(default_factory=list)
    """Path, token and content of each."""
    upload_headers: list[dict[str, str]] = field(default_factory=list)
    tokens: int = 0
    allowed: dict[str, str] = field(default_factory=dict)
    """The claim of each token."""
    phase: str = "UploadReady"
    is_ready: bool = True
    """Whether new claims get an upload server."""
    after: dict[str, str] = field(default_factory=lambda: {f"{STORAGE}pod.phase": "Succeeded"})
    """What is noted on claims when an upload has come."""
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Events, with the field selectors that they answer."""
    when_asked: Callable[[str], None] = lambda _: None
    """Called with the path of each GET."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/v1beta1/"):
            return await self._upload(request)
        if (request.method, request.path) in self.answers:
            return await super().handle(request)
        text = await request.text()
        body = json.loads(text) if text else None
        self.requests.append((request.method, request.path_qs, body))
        if request.path == EVENTS:
            selector = request.query["fieldSelector"]
            found = [event for about, event in self.events if about == selector]
            return web.json_response({"items": found})
        return self._api(request.method, request.path, body)

    def claim(self, name: str = "disk", **notes: str) -> dict[str, Any]:
        """Keep a claim with these annotations of CDI."""
        annotations = {f"{STORAGE}{key.replace('_', '.')}": value for key, value in notes.items()}
        metadata = {"name": name, "namespace": "default", "uid": f"c-{name}", "annotations": annotations}
        self.objects[f"{CLAIMS}/{name}"] = {"metadata": metadata, "spec": {}}
        found: dict[str, Any] = self.objects[f"{CLAIMS}/{name}"]
        return found

    def volume(self, name: str = "disk", **notes: str) -> dict[str, Any]:
        """Keep a DataVolume with these annotations of CDI."""
        annotations = {f"{STORAGE}{key}": value for key, value in notes.items()}
        metadata = {"name": name, "namespace": "default", "uid": f"v-{name}", "annotations": annotations}
        document = {"metadata": metadata, "spec": {}, "status": {"phase": self.phase, "claimName": name}}
        self.objects[f"{VOLUMES}/{name}"] = document
        return document

    def made(self, path: str) -> dict[str, Any]:
        """The document that was posted to `path`."""
        found: dict[str, Any] = next(
            body for method, at, body in self.requests if (method, at.split("?")[0]) == ("POST", path)
        )
        return found

    def _api(self, method: str, path: str, body: Any) -> web.Response:
        if method == "GET":
            self.when_asked(path)
            if path not in self.objects:
                _, plural, name = path.rsplit("/", 2)
                return _failed(404, f'{plural} "{name}" not found')
            return web.json_response(self.objects[path])
        if method == "PATCH":
            _merge(self.objects[path], body)
            return web.json_response(self.objects[path])
        if path == TOKENS:
            self.tokens += 1
            self.allowed[f"Bearer token-{self.tokens}"] = body["spec"]["pvcName"]
            return web.json_response({"status": {"token": f"token-{self.tokens}"}}, status=201)
        own = f"{path}/{body['metadata']['name']}"
        if own in self.objects:
            return _failed(409, f'"{body["metadata"]["name"]}" already exists')
        self.objects[own] = {**body, "metadata": {"uid": "u", **body["metadata"]}}
        self._follow(path, body)
        return web.json_response(self.objects[own], status=201)

    def _follow(self, path: str, body: dict[str, Any]) -> None:
        """What controllers do."""
        if path == MACHINES:
            for template in body["spec"].get("dataVolumeTemplates", []):
                name = template["metadata"]["name"]
                self._fill(name)
                if "blank" in template["spec"]["source"]:
                    self.objects[f"{VOLUMES}/{name}"]["status"]["phase"] = "Succeeded"
        elif path == VOLUMES:
            self._fill(body["metadata"]["name"])
        elif path == CLAIMS and self.is_ready:
            self.objects[f"{path}/{body['metadata']['name']}"]["metadata"]["annotations"][
                f"{STORAGE}pod.ready"
            ] = "true"

    def _fill(self, name: str) -> None:
        if f"{VOLUMES}/{name}" not in self.objects or "status" not in self.objects[f"{VOLUMES}/{name}"]:
            self.volume(name)
        self.claim(name, upload_target="")

    async def _upload(self, request: web.Request) -> web.Response:
        if request.method == "HEAD":
            return web.Response(status=200 if self.has_async or "async" not in request.path else 404)
        content = await request.read()
        token = request.headers.get("Authorization", "")
        self.uploads.append((request.path, token, content))
        self.upload_headers.append(dict(request.headers))
        status = self.statuses[min(len(self.uploads), len(self.statuses)) - 1]
        if status == 200:
            self.objects[f"{CLAIMS}/{self.allowed[token]}"]["metadata"]["annotations"] |= self.after
        if self.loses_answer and len(self.uploads) == 1 and request.transport is not None:
            request.transport.close()
        return web.Response(status=status, text="why" if status != 200 else "")


def _failed(code: int, message: str) -> web.Response:
    reason = {404: "NotFound", 409: "AlreadyExists"}[code]
    status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return web.json_response(status, status=code)


def _merge(document: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            document.pop(key, None)
        elif isinstance(value, dict) and isinstance(document.get(key), dict):
            _merge(document[key], value)
        else:
            document[key] = value
