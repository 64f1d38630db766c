"""Settings of the API server, each with its unit and default."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .registry.room import NAMESPACE_BYTES


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the server."""

    storage: Path | None = None
    """The database file; None keeps everything in memory and forgets it at the end."""
    bind: str = "127.0.0.1"
    port: int = 6443
    """0 chooses a free port."""
    advertise: str = ""
    """The address that the service ``default/kubernetes`` leads to; empty: `bind`."""
    tls_cert: Path | None = None
    """Certificate chain; without certificate and key the server speaks plain HTTP (tests only)."""
    tls_key: Path | None = None
    client_ca: Path | None = None
    """CA of client certificates (CN is the user, O the groups)."""
    front_proxy_ca: Path | None = None
    """CA of front proxies, which speak for users by X-Remote-* headers."""
    front_proxy_names: tuple[str, ...] = ("front-proxy-client",)
    proxy_client_cert: Path | None = None
    """Certificate shown to aggregated API servers and to webhooks."""
    proxy_client_key: Path | None = None
    kubelet_client_cert: Path | None = None
    """Certificate shown to nodes."""
    kubelet_client_key: Path | None = None
    kubelet_ca: Path | None = None
    """CA of the nodes' serving certificates; None trusts any."""
    service_account_keys: tuple[Path, ...] = ()
    """Private keys (PEM); the first one signs, all verify. Empty: a key made at start and kept beside the
    database."""
    service_account_issuer: str = "https://kubernetes.default.svc.cluster.local"
    api_audiences: tuple[str, ...] = ()
    """Audiences of tokens for this server; empty: the issuer."""
    service_cidr: str = "10.96.0.0/16"
    """Service addresses: one range, or one of each family with a comma between, the default one first."""
    cluster_cidr: str = ""
    """What nodes, pods and services use, of each family, with a comma between them; empty: the service
    addresses alone."""
    external_ranges: tuple[str, ...] = ()
    """Where addresses that services claim from outside the cluster take effect."""
    reserved_images: tuple[str, ...] = ()
    """Repositories of images that nobody but `reserved_image_accounts` may use."""
    reserved_image_accounts: tuple[str, ...] = ()
    """Service accounts as ``namespace/name``."""
    node_ports: tuple[int, int] = (30000, 32767)
    """First and last node port."""
    token_file: Path | None = None
    """Static tokens: ``token,user,uid,"group,..."`` per line."""
    anonymous: bool = True
    audit_log: Path | None = None
    """File for audit events, one JSON document per line; None writes none."""
    compaction_interval_seconds: float = 300.0
    """History is kept for one to two times as long: what watches resume from and lists can go back to. 0
    bounds it by number and size alone."""
    namespace_bytes: int = NAMESPACE_BYTES
    """How many bytes the objects of one namespace may have together."""
    event_ttl_seconds: float = 3600.0
    """How long events are kept after they were last written."""
    request_timeout_seconds: float = 60.0
    """How long the body of a request may take to arrive (heads and handshakes have less at most)."""
    shutdown_grace_seconds: float = 5.0
    """How long open requests may take to finish after the server was asked to stop."""
