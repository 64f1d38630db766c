"""virt-api with tokens for displays, behind a real API server that authenticates, authorizes and admits."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp
import orjson
import trustme
from tests.support.apiserver import ADMIN_TOKEN, RunningServer, running_server
from tests.support.certificate_files import front_proxy_files, write_certificate
from tests.support.waiting import until, until_condition

from kubecore import resources as core
from kubecore.client import Client
from kubecore.client.config import Impersonation
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.runtime.component import Context
from virtplane.api import crds, resources
from virtplane.api.config import ClusterConfig
from virtplane.api.vnc_access import GATE, TOKEN_GROUP, access_name
from virtplane.compute.apiserver.server import VirtApi
from virtplane.operators.kit.apply import BUILT_IN
from virtplane.operators.kubevirt.strategy.components import virt_api
from virtplane.operators.kubevirt.strategy.consoleproxy import console_proxy
from virtplane.operators.kubevirt.strategy.parameters import Parameters
from virtplane.operators.kubevirt.strategy.webhooks import api_services, token_services
from virtplane.run import client_factory, parse

INSTALLED_IN = "kubevirt"
USER = "ann"
_NOTHING: Mapping[str, str] = MappingProxyType({})
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class TokenCluster:
    """The API server, with an administrator's client."""

    server: RunningServer
    client: Client
    namespace: str = ""
    """Where the machines of a test are."""

    async def fresh(self, namespace: str) -> TokenCluster:
        """The same with a namespace of its own, where nobody has been granted anything."""
        await self.client.create(core.NAMESPACES, _object("v1", "Namespace", namespace))
        return TokenCluster(self.server, self.client, namespace)

    def user(self, name: str) -> Client:
        """A client of a user whom nothing was granted but what a test grants."""
        return Client(replace(self.server.config(), impersonate=Impersonation(user=name)))

    async def ask(self, machine: str, *, user: str = USER, version: str = "v1", duration: str = "") -> Answer:
        """Ask for a token."""
        path = f"/apis/{TOKEN_GROUP}/{version}/namespaces/{self.namespace}/virtualmachines/{machine}/vnc"
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Impersonate-User": user}
        return await self._get(path, headers, {"duration": duration} if duration else {})

    async def open(self, machine: str, token: str) -> Answer:
        """Ask for a display, by a token, as if a websocket could be opened."""
        path = (
            f"{resources.SUBRESOURCES_PATH}/namespaces/{self.namespace}/virtualmachineinstances/{machine}/vnc"
        )
        return await self._get(path, {"Authorization": f"Bearer {token}"})

    async def _get(
        self, path: str, headers: Mapping[str, str], query: Mapping[str, str] = _NOTHING
    ) -> Answer:
        tls = ssl.create_default_context(cadata=self.server.ca_data.decode())
        async with (
            aiohttp.ClientSession() as session,
            session.get(self.server.url + path, headers=headers, params=query, ssl=tls) as answer,
        ):
            return Answer(answer.status, await answer.text())

    async def machine(self, name: str) -> JsonObject:
        """A machine whose guest does not run yet: its display is refused with code 400, to those who may."""
        vm = await self.client.create(resources.VIRTUAL_MACHINES, _machine(name), self.namespace)
        owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name}
        instance = _object("kubevirt.io/v1", "VirtualMachineInstance", name, spec={"domain": {"devices": {}}})
        instance["metadata"]["ownerReferences"] = [{**owner, "uid": meta.uid(vm), "controller": True}]
        await self.client.create(resources.VIRTUAL_MACHINE_INSTANCES, instance, self.namespace)
        return vm

    async def remove(self, name: str) -> None:
        """Delete a machine and its instance. No garbage collector works here: what they owned stays."""
        await self.client.delete(resources.VIRTUAL_MACHINES, name, self.namespace)
        await self.client.delete(resources.VIRTUAL_MACHINE_INSTANCES, name, self.namespace)

    async def grant(self, role: str, user: str = USER, *, kind: str = "ClusterRole") -> None:
        """Bind a role to a user in the namespace of the machines."""
        subject = {"apiGroup": _RBAC, "kind": "User", "name": user}
        binding = _object(f"{_RBAC}/v1", "RoleBinding", f"{user}-{role.replace(':', '-')}")
        binding |= {"subjects": [subject], "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role}}
        await self.client.create(core.ROLE_BINDINGS, binding, self.namespace)

    async def account(self, machine: str) -> JsonObject:
        """The account of a machine."""
        return await self.client.get(core.SERVICE_ACCOUNTS, access_name(machine), self.namespace)

    async def set_gates(self, *gates: str) -> None:
        """Open these feature gates only."""
        spec = {"configuration": {"developerConfiguration": {"featureGates": list(gates)}}}
        await self.client.patch(resources.KUBEVIRTS, "kubevirt", {"spec": spec}, INSTALLED_IN, type="merge")


@dataclass(frozen=True)
class Answer:
    """What was answered."""

    code: int
    text: str

    @property
    def document(self) -> Any:
        """The body as JSON."""
        return orjson.loads(self.text)


@asynccontextmanager
async def token_cluster(directory: Path) -> AsyncIterator[TokenCluster]:
    """Everything, with certificates in `directory`. virt-api has the rights of its own accounts only."""
    front_proxy, authority = front_proxy_files(directory), trustme.CA()
    certificates = directory / "virt-api"
    certificates.mkdir()
    write_certificate(authority.issue_cert(f"virt-api.{INSTALLED_IN}.svc"), certificates, "tls")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    async with (
        running_server(directory, **front_proxy) as server,
        server.client() as client,
    ):
        bundle = authority.cert_pem.bytes().decode()
        parameters = Parameters(INSTALLED_IN, "image", "distributed", ClusterConfig(None), bundle)
        await _install(client)
        options = parse(["virt-api", "--namespace", INSTALLED_IN])
        context = Context(
            client_factory=client_factory(options, server.config(await _own_token(client)), {}),
            namespace=INSTALLED_IN,
            settings={"api_port": port, "api_certificates": certificates},
        )
        task = asyncio.create_task(VirtApi().run(context))
        try:
            for document in (*api_services(parameters), *token_services(parameters)):
                document["spec"]["service"]["port"] = port
                await client.create(core.API_SERVICES, document)
                await until_condition(client, core.API_SERVICES, meta.name(document), "Available")
            await until(lambda: context.health.ready()[0])
            yield TokenCluster(server, client)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await context.close()


async def _install(client: Client) -> None:
    """What an operator would: kinds, the KubeVirt object, accounts and rights."""
    await client.create(core.NAMESPACES, _object("v1", "Namespace", INSTALLED_IN))
    wanted = (resources.KUBEVIRTS, resources.VIRTUAL_MACHINES, resources.VIRTUAL_MACHINE_INSTANCES)
    for definition in crds.custom_resource_definitions():
        if definition["spec"]["names"]["kind"] in {each.kind for each in wanted}:
            await client.create(core.CUSTOM_RESOURCE_DEFINITIONS, definition)
            name = meta.name(definition)
            await until_condition(client, core.CUSTOM_RESOURCE_DEFINITIONS, name, "Established")
    gates = {"developerConfiguration": {"featureGates": [GATE]}}
    kubevirt = _object("kubevirt.io/v1", "KubeVirt", "kubevirt", spec={"configuration": gates})
    await client.create(resources.KUBEVIRTS, kubevirt, INSTALLED_IN)
    # Its configuration counts once it is being installed.
    status = {"status": {"phase": "Deployed"}}
    await client.patch(
        resources.KUBEVIRTS, "kubevirt", status, INSTALLED_IN, type="merge", subresource="status"
    )
    for document in (*virt_api.COMPONENT.access(INSTALLED_IN), *console_proxy(INSTALLED_IN)):
        (resource,) = (each for each in BUILT_IN if each.kind == document["kind"])
        await client.create(resource, document)
    service = _object("v1", "Service", "virt-api", spec={"type": "ExternalName", "externalName": "localhost"})
    await client.create(core.SERVICES, service, INSTALLED_IN)
    rule = {"apiGroups": ["subresources.kubevirt.io"], "resources": ["virtualmachineinstances/vnc"]}
    opener = _object(f"{_RBAC}/v1", "ClusterRole", "opener", rules=[{**rule, "verbs": ["get"]}])
    await client.create(core.CLUSTER_ROLES, opener)


async def _own_token(client: Client) -> str:
    """virt-api's, as a pod of its own has it."""
    request: JsonObject = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    account = virt_api.COMPONENT.account
    answer = await client.create(
        core.SERVICE_ACCOUNTS, request, INSTALLED_IN, name=account, subresource="token"
    )
    return str(answer["status"]["token"])


def _machine(name: str) -> JsonObject:
    template: JsonObject = {"spec": {"domain": {"devices": {}}}}
    spec = {"runStrategy": "Halted", "template": template}
    return _object("kubevirt.io/v1", "VirtualMachine", name, spec=spec)


def _object(api_version: str, kind: str, name: str, **members: object) -> JsonObject:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **members}
