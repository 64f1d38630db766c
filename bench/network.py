"""How soon a change of a policy or a service takes effect in the kernel, beside hundreds of others.

Everything but the API server is real: watches and caches, the rules, nft, the kernel, and packets that tell
when a change is active. Needs root.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from tests.support.dialling import Call, answered, listening
from tests.support.routed_pods import RoutedPods, routed_pods

from bench.figures import machine, percentile, row, say
from kindling.network import policy_rules
from kindling.network.policy_enforcer import PolicyEnforcer
from kindling.network.proxy import ProxyPlace, ServiceNetwork
from kubecore.client import ClientConfig
from kubecore.json import JsonObject
from kubecore.resources import ENDPOINT_SLICES, NAMESPACES, NETWORK_POLICIES, PODS, SERVICES
from kubecore.testing import MemoryApi

POLICY_TARGET, SERVICE_TARGET = 0.300, 0.200
SPACES, PORT = 20, 80
SUBNET, SERVICE, NEW_SERVICE = "10.64.0.0/16", "10.64.250.1", "10.64.250.2"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.network", description=__doc__)
    parser.add_argument("--policies", type=int, default=200)
    parser.add_argument("--pods", type=int, default=600, help="of all nodes; one in six is this node's")
    parser.add_argument("--services", type=int, default=500)
    parser.add_argument("--times", type=int, default=20)
    options = parser.parse_args(argv)
    say(machine())
    with routed_pods(["client", "server"]) as network, ExitStack() as stack:
        place = (network.address("server"), PORT)
        stack.enter_context(listening(network.pods["server"], [place]))
        found = asyncio.run(_policies(network, options.policies, options.pods, options.times))
        _report(
            f"policy change to active, {options.policies} policies, {options.pods} pods", found, POLICY_TARGET
        )
        found = asyncio.run(_services(network, options.services, options.times))
        what = f"service change, {options.services} services"
        _report(what, found, SERVICE_TARGET)
    say(machine())
    return 0


def _report(name: str, found: list[float], target: float) -> None:
    worst = percentile(found, 0.95)
    value = f"P50 {percentile(found, 0.5) * 1000:.0f} ms, P95 {worst * 1000:.0f} ms"
    row(name, value, target=f"{target * 1000:.0f} ms", met=worst <= target)


async def _policies(network: RoutedPods, policies: int, pods: int, times: int) -> list[float]:
    """Seconds from a change of one policy until packets meet it, for shutting and opening in turn."""
    api = MemoryApi()
    for number in range(SPACES):
        name = f"space{number}"
        api.put(NAMESPACES, {"metadata": {"name": name, "labels": {"name": name, "kind": f"k{number % 3}"}}})
    attached: dict[str, str] = {}
    for number in range(pods):
        address = f"10.64.{2 + number // 200}.{number % 200 + 10}"
        api.put(PODS, _pod(f"pod{number}", f"space{number % SPACES}", address, app=f"app{number % 7}"))
        if number % 6 == 0:
            attached[f"pod{number}"] = address
    for name in network.pods:
        api.put(PODS, _pod(name, "space0", network.address(name), app=name))
        attached[name] = network.address(name)
    for number in range(policies):
        api.put(NETWORK_POLICIES, _policy(f"policy{number}", number))
    async with api.client() as client:
        enforcer = PolicyEnforcer(client, ("10.64.240.10",), network.namespace)
        for uid, address in attached.items():
            enforcer.attach(uid, [address])
        working = asyncio.create_task(enforcer.run())
        call = Call("client", network.address("server"), PORT)
        # Shut from the beginning, so that it is seen when all rules are there.
        api.put(NETWORK_POLICIES, _measured(opened=False))
        await _until(network, call, working, wanted=False)
        found = []
        for turn in range(times):
            opened = turn % 2 == 0
            start = time.monotonic()
            api.put(NETWORK_POLICIES, _measured(opened=opened))
            await _until(network, call, working, wanted=opened)
            found.append(time.monotonic() - start)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    network.node.run("nft", "delete", "table", policy_rules.FAMILY, policy_rules.NAME)
    return found


async def _services(network: RoutedPods, services: int, times: int) -> list[float]:
    """Seconds from a service's creation or deletion until connections meet it, on a node of two places."""
    api = MemoryApi()
    target = network.address("server")
    for number in range(services):
        backends = [f"10.64.{2 + number % 3}.{number % 200 + 10 + each}" for each in range(3)]
        _put_service(api, f"service{number}", f"10.64.{241 + number // 250}.{number % 250 + 1}", backends)
    places = [ProxyPlace("node01", network.namespace, ("10.64.1.0/24",), ("10.64.1.1",))]
    proxy = ServiceNetwork(
        ClientConfig(server="memory://"),
        places,
        table="bench",
        subnets=[SUBNET],
        bridge="",
        dns_service="10.64.240.10",
        dns_address="127.0.0.1",
        upstream_servers=(),
    )
    async with api.client() as client:
        working = asyncio.create_task(proxy.follow(client))
        _put_service(api, "first", SERVICE, [target])
        await _until(network, Call("client", SERVICE, PORT), working, wanted=True)
        found = []
        for turn in range(times):
            start = time.monotonic()
            if turn % 2 == 0:
                _put_service(api, "measured", NEW_SERVICE, [target])
            else:
                api.remove(ENDPOINT_SLICES, "measured", "space0")
                api.remove(SERVICES, "measured", "space0")
            await _until(network, Call("client", NEW_SERVICE, PORT), working, wanted=turn % 2 == 0)
            found.append(time.monotonic() - start)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    return found


async def _until(network: RoutedPods, call: Call, working: asyncio.Task[None], *, wanted: bool) -> None:
    """Wait until packets find what is `wanted`; links answer at once, so an unanswered call was dropped."""
    callers = network.pods
    attempt: Callable[[], Any] = lambda: answered(callers, [call], seconds=0.005)  # noqa: E731
    async with asyncio.timeout(20):
        while (call in attempt()) is not wanted:
            if working.done():
                working.result()
            await asyncio.sleep(0.005)


def _pod(name: str, namespace: str, address: str, **labels: str) -> JsonObject:
    metadata = {"name": name, "namespace": namespace, "uid": name, "labels": labels}
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    return {"metadata": metadata, "spec": {"nodeName": "n"}, "status": status}


def _policy(name: str, number: int) -> JsonObject:
    """One of many: pods of an application let others in, by namespace, application, block and port."""
    peers: list[JsonObject] = [
        {"podSelector": {"matchLabels": {"app": f"app{number % 5}"}}},
        {"namespaceSelector": {"matchLabels": {"kind": f"k{number % 3}"}}},
        {"ipBlock": {"cidr": "192.0.2.0/24", "except": [f"192.0.2.{number % 200}/32"]}},
    ]
    ports = [{"protocol": "TCP", "port": 8000 + number}, {"protocol": "UDP", "port": 53}]
    spec: JsonObject = {"podSelector": {"matchLabels": {"app": f"app{number % 7}"}}}
    spec |= {"ingress": [{"from": peers, "ports": ports}], "policyTypes": ["Ingress"]}
    return {"metadata": {"name": name, "namespace": f"space{number % SPACES}"}, "spec": spec}


def _measured(*, opened: bool) -> JsonObject:
    spec = {"podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Ingress"]}
    return {
        "metadata": {"name": "measured", "namespace": "space0"},
        "spec": spec | {"ingress": [{}] * opened},
    }


def _put_service(api: MemoryApi, name: str, address: str, backends: Sequence[str]) -> None:
    metadata = {"name": name, "namespace": "space0"}
    port = {"name": "web", "port": PORT, "protocol": "TCP"}
    spec = {"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address], "ports": [port]}
    api.put(SERVICES, {"metadata": metadata, "spec": spec})
    slices: JsonObject = {"metadata": metadata | {"labels": {"kubernetes.io/service-name": name}}}
    slices |= {"addressType": "IPv4", "ports": [port]}
    ready = {"ready": True}
    slices["endpoints"] = [
        {"addresses": [each], "conditions": ready, "nodeName": "node01"} for each in backends
    ]
    api.put(ENDPOINT_SLICES, slices)


if __name__ == "__main__":
    raise SystemExit(main())
