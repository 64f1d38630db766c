"""Where a webhook is: validation of ``clientConfig``, which admission and conversion webhooks have alike."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from urllib.parse import urlsplit

from kubecore.json import JsonObject
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, invalid, required

_URL_FORM = "; desired format: https://host[/path]"


def webhook_client(path: FieldPath, config: JsonObject) -> Iterator[FieldError]:
    """Exactly one of a URL and a service, each well-formed."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url(path.child("url"), str(url))
    elif isinstance(service, dict):
        yield from _service(path.child("service"), service)


def ca_bundle(path: FieldPath, config: JsonObject) -> Iterator[FieldError]:
    """Certificates, where there are any; conversion webhooks alone are checked for that."""
    bundle = config.get("caBundle")
    if bundle and not _is_certificate(str(bundle)):
        text = "unable to load root certificates: unable to parse bytes as PEM block"
        yield invalid(path.child("caBundle"), bundle, text)


def _is_certificate(bundle: str) -> bool:
    try:
        return b"-----BEGIN CERTIFICATE-----" in base64.b64decode(bundle)
    except (binascii.Error, ValueError):
        return False


def _url(path: FieldPath, url: str) -> Iterator[FieldError]:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        yield required(path, f"url must be a valid URL: {error}{_URL_FORM}")
        return
    user, _, host = parts.netloc.rpartition("@")
    if parts.scheme != "https":
        yield invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}")
    if not host:
        yield invalid(path, host, f"host must be specified{_URL_FORM}")
    if parts.username is not None:
        yield invalid(path, user, "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(path, parts.query, "query parameters are not permitted in the URL")


def _service(path: FieldPath, service: JsonObject) -> Iterator[FieldError]:
    for name in ("name", "namespace"):
        if not service.get(name):
            yield required(path.child(name), f"service {name} is required")
    port = service.get("port")
    if port is not None and (messages := names.is_port_number(int(port))):
        yield invalid(path.child("port"), port, "port is not valid: " + ", ".join(messages))
    yield from _url_path(path.child("path"), str(service.get("path") or "/"))


def _url_path(path: FieldPath, url_path: str) -> Iterator[FieldError]:
    if url_path == "/":
        return
    if not url_path.startswith("/"):
        yield invalid(path, url_path, "must start with a '/'")
    for index, step in enumerate(url_path[1:].removesuffix("/").split("/")):
        problems = names.is_dns1123_subdomain(step) if step else []
        for problem in problems:
            yield invalid(path, url_path, f"segment[{index}]: {problem}")
        if not step:
            yield invalid(path, url_path, f"segment[{index}] may not be empty")
