"""The asynchronous client of Kubernetes API servers.

`load_kubeconfig` and `in_cluster` give the server and the credentials; `Client` sends requests: raw objects
in and out, watches, streams and websockets. Importing this package does not import aiohttp.
"""

from kubecore.client.client import Client, PatchType, WatchEvent
from kubecore.client.config import (
    ClientConfig,
    ConfigError,
    ExecPlugin,
    Impersonation,
    in_cluster,
    is_in_cluster,
)
from kubecore.client.discovery import Discovery, ServedResource, discover
from kubecore.client.kubeconfig import load_kubeconfig
from kubecore.client.transport import ConnectionFailed, Request, Response, StreamedResponse, Transport

__all__ = [
    "Client",
    "ClientConfig",
    "ConfigError",
    "ConnectionFailed",
    "Discovery",
    "ExecPlugin",
    "Impersonation",
    "PatchType",
    "Request",
    "Response",
    "ServedResource",
    "StreamedResponse",
    "Transport",
    "WatchEvent",
    "discover",
    "in_cluster",
    "is_in_cluster",
    "load_kubeconfig",
]
