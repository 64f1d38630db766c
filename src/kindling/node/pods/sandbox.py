"""A pod's sandbox as a CRI document: names, resolver, ports, namespaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kindling.node.pods import identity, resources, security, sysctls
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str

_MAX_HOSTNAME = 63


@dataclass(frozen=True, slots=True)
class ResolverSettings:
    """Where pods resolve names. `upstream` is the node's own resolver configuration."""

    cluster_server: str
    cluster_domain: str = "cluster.local"
    upstream_servers: Sequence[str] = ()
    upstream_searches: Sequence[str] = ()
    upstream_options: Sequence[str] = ()


def hostname(pod: JsonObject) -> str:
    """The name inside the pod: spec.hostname or the pod's name, cut to what the kernel takes."""
    name = get_str(pod, "spec", "hostname") or get_str(pod, "metadata", "name")
    return name[:_MAX_HOSTNAME].rstrip("-.")


def domain(pod: JsonObject, settings: ResolverSettings) -> str:
    """The domain of a pod with a subdomain, else empty."""
    subdomain = get_str(pod, "spec", "subdomain")
    namespace = get_str(pod, "metadata", "namespace")
    return f"{subdomain}.{namespace}.svc.{settings.cluster_domain}" if subdomain else ""


def resolver(pod: JsonObject, settings: ResolverSettings) -> dict[str, list[str]]:
    """CRI's DNSConfig after the pod's policy and its own additions."""
    policy = get_str(pod, "spec", "dnsPolicy", default="ClusterFirst")
    if policy == "ClusterFirst" and get_bool(pod, "spec", "hostNetwork"):
        policy = "Default"
    servers: list[str] = []
    searches: list[str] = []
    options: list[str] = []
    if policy in ("ClusterFirst", "ClusterFirstWithHostNet"):
        namespace = get_str(pod, "metadata", "namespace")
        base = settings.cluster_domain
        servers = [settings.cluster_server]
        searches = [f"{namespace}.svc.{base}", f"svc.{base}", base, *settings.upstream_searches]
        options = ["ndots:5"]
    elif policy == "Default":
        servers = list(settings.upstream_servers)
        searches = list(settings.upstream_searches)
        options = list(settings.upstream_options)
    extra = get_object(pod, "spec", "dnsConfig")
    servers += get_list(extra, "nameservers")
    searches += get_list(extra, "searches")
    for option in get_list(extra, "options"):
        name, value = get_str(option, "name"), get_str(option, "value")
        options = [known for known in options if known.split(":")[0] != name]
        options.append(f"{name}:{value}" if value else name)
    unique = {"servers": servers, "searches": searches, "options": options}
    return {key: list(dict.fromkeys(values)) for key, values in unique.items()}


def sandbox_config(
    pod: JsonObject, attempt: int, settings: ResolverSettings, cgroup_root: str
) -> dict[str, Any]:
    """CRI's PodSandboxConfig. Host ports are the node's nftables' work and not repeated here."""
    metadata = get_object(pod, "metadata")
    host_network = get_bool(pod, "spec", "hostNetwork")
    return {
        "metadata": {
            "name": get_str(metadata, "name"),
            "namespace": get_str(metadata, "namespace"),
            "uid": get_str(metadata, "uid"),
            "attempt": attempt,
        },
        # With hostNetwork, the runtime uses the node's host name.
        "hostname": "" if host_network else hostname(pod),
        "log_directory": str(identity.log_directory(pod)),
        "dns_config": resolver(pod, settings),
        "labels": identity.pod_labels(pod),
        "annotations": {str(k): str(v) for k, v in get_object(metadata, "annotations").items()},
        "linux": {
            "cgroup_parent": resources.cgroup_parent(cgroup_root, pod),
            "security_context": security.sandbox_security(pod),
            "sysctls": sysctls.of_pod(pod),
        },
    }


def hosts_file(pod: JsonObject, ips: Sequence[str], settings: ResolverSettings, node_hosts: str) -> str:
    """The content of /etc/hosts in the pod's containers."""
    aliases = "".join(
        f"{get_str(alias, 'ip')}\t{chr(9).join(get_list(alias, 'hostnames'))}\n"
        for alias in get_list(pod, "spec", "hostAliases")
    )
    tail = f"\n# Entries added by HostAliases.\n{aliases}" if aliases else ""
    if get_bool(pod, "spec", "hostNetwork"):
        return f"# Kubernetes-managed hosts file (host network).\n{node_hosts}{tail}"
    name, of = hostname(pod), domain(pod, settings)
    names = f"{name}.{of}\t{name}" if of else name
    own = "".join(f"{ip}\t{names}\n" for ip in ips)
    return (
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
        "fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
        f"{own}{tail}"
    )
