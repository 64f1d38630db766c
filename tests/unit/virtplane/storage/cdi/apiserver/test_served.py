"""cdi-apiserver behind a real API server: who may clone and upload, and what becomes of claims."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from tests.support.apiserver import ADMIN_TOKEN
from tests.support.cdi import CdiCluster, cdi_cluster

from kubecore import resources as core
from kubecore.client import Client
from kubecore.json import JsonObject
from virtplane.api import resources
from virtplane.storage.cdi.tokens import Verifier

_TOKENS = "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/mine/uploadtokenrequests"
_DIRECT = {
    ("POST", _TOKENS): 401,
    ("POST", _TOKENS.replace("mine", "mine%2fx")): 404,
    ("POST", "/datavolume-mutate"): 401,
    ("GET", "/apis/upload.cdi.kubevirt.io/v1beta1"): 200,
    ("GET", "/healthz"): 200,
    ("GET", "/openapi/v2"): 200,
}
_GIB = {"resources": {"requests": {"storage": "1Gi"}}}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CdiCluster]:
    async with cdi_cluster(tmp_path_factory.mktemp("cdi")) as running:
        for name in ("mine", "theirs"):
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await running.client.create(core.NAMESPACES, namespace)
        yield running


async def _ask(
    cluster: CdiCluster, method: str, path: str, body: Any, user: str = ""
) -> tuple[int, Any, str]:
    """Code, body and first warning of an answer."""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": "application/json"}
    if user:
        headers["Impersonate-User"] = user
    if method == "PATCH":
        headers["Content-Type"] = "application/merge-patch+json"
    tls = ssl.create_default_context(cadata=cluster.server.ca_data.decode())
    async with aiohttp.ClientSession() as session:
        url = cluster.server.url + path
        async with session.request(method, url, json=body, headers=headers, ssl=tls) as answer:
            return answer.status, await answer.json(), answer.headers.get("Warning", "")


async def _allow(
    client: Client, user: str, namespace: str, *rules: tuple[str, str], verb: str = "create"
) -> None:
    """Let `user` create (or `verb`) these (group, resource) in `namespace`."""
    name, group = f"{user}-role", "rbac.authorization.k8s.io"
    found = [{"apiGroups": [api], "resources": [what], "verbs": [verb]} for api, what in rules]
    role = {"metadata": {"name": name}, "rules": found}
    await client.create(core.ROLES, {"apiVersion": f"{group}/v1", "kind": "Role", **role}, namespace)
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"kind": "User", "apiGroup": group, "name": user}],
    }
    await client.create(core.ROLE_BINDINGS, binding, namespace)


def _clone(kind: str, namespace: str, **annotations: str) -> JsonObject:
    return {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {"name": "dv", "annotations": annotations},
        "spec": {"source": {kind: {"name": "src", "namespace": namespace}}, "storage": _GIB},
    }


async def _create(cluster: CdiCluster, document: JsonObject, user: str) -> tuple[int, Any]:
    path = "/apis/cdi.kubevirt.io/v1beta1/namespaces/mine/datavolumes?dryRun=All"
    code, answer, _ = await _ask(cluster, "POST", path, document, user)
    return code, answer


async def _verifier(client: Client) -> Verifier:
    secret = await client.get(core.SECRETS, "cdi-api-signing-key", "cdi")
    return Verifier("cdi-apiserver", base64.b64decode(secret["data"]["id_rsa.pub"]))


@pytest.mark.feature("STO-28", "STO-29")
async def test_only_who_may_read_the_source_may_clone_it(cluster: CdiCluster) -> None:
    users = ("none", "cloner", "pods", "pods-and-claims")
    for user in users:
        await _allow(cluster.client, user, "mine", ("cdi.kubevirt.io", "datavolumes"))
    await _allow(cluster.client, "cloner", "theirs", ("cdi.kubevirt.io", "datavolumes/source"))
    await _allow(cluster.client, "pods", "theirs", ("", "pods"))
    await _allow(cluster.client, "pods-and-claims", "theirs", ("", "pods"), ("", "pvcs"))
    expected = {
        "pvc": {"none": 422, "cloner": 201, "pods": 201, "pods-and-claims": 201},
        "snapshot": {"none": 422, "cloner": 201, "pods": 422, "pods-and-claims": 201},
    }
    found = {
        kind: {user: (await _create(cluster, _clone(kind, "theirs"), user))[0] for user in users}
        for kind in expected
    }
    assert found == expected
    code, answer = await _create(cluster, _clone("pvc", "theirs"), "none")
    assert (code, answer["details"]["causes"]) == (
        422,
        [
            {
                "reason": "FieldValueInvalid",
                "message": "User none has insufficient permissions in clone source namespace theirs",
                "field": "spec.source.PVC.namespace",
            }
        ],
    )
    # The right to read the source is none to write into the target's namespace.
    await _allow(cluster.client, "reader", "theirs", ("cdi.kubevirt.io", "datavolumes/source"))
    code, answer = await _create(cluster, _clone("pvc", "theirs"), "reader")
    assert (code, answer["reason"]) == (403, "Forbidden")
    # Within a namespace everybody may who may make DataVolumes there; and what is there needs no copy.
    assert (await _create(cluster, _clone("pvc", "mine"), "none"))[0] == 201
    populated = _clone("pvc", "theirs", **{"cdi.kubevirt.io/storage.prePopulated": "dv"})
    for user in ("none", "cloner"):  # and who may, makes no token for whoever changes the DataVolume later
        code, answer = await _create(cluster, populated, user)
        marks = list(answer["metadata"]["annotations"])
        assert (code, marks) == (201, ["cdi.kubevirt.io/storage.prePopulated"])


@pytest.mark.feature("STO-28")
@pytest.mark.parametrize("kind", ["pvc", "snapshot"])
async def test_who_may_not_clone_may_change_what_a_clone_is_labelled_with(
    cluster: CdiCluster, kind: str
) -> None:
    """The controller is one of them: it says in annotations how far the clone is."""
    client, user = cluster.client, f"{kind}-labeller"
    await _allow(client, user, "mine", ("cdi.kubevirt.io", "datavolumes"), verb="patch")
    clone = _clone(kind, "theirs")
    clone["metadata"]["name"] = f"{kind}-dv"
    made = await client.create(resources.DATA_VOLUMES, clone, "mine")
    path = f"/apis/cdi.kubevirt.io/v1beta1/namespaces/mine/datavolumes/{kind}-dv"
    code, answer, _ = await _ask(cluster, "PATCH", path, {"metadata": {"labels": {"a": "b"}}}, user)
    assert (code, answer["metadata"].get("annotations")) == (200, made["metadata"]["annotations"])


async def test_the_token_of_a_clone_names_source_and_target(cluster: CdiCluster) -> None:
    _, answer = await _create(cluster, _clone("snapshot", "theirs"), "")
    token = answer["metadata"]["annotations"]["cdi.kubevirt.io/storage.clone.token"]
    found = (await _verifier(cluster.client)).verify(token)
    assert (found.operation, found.resource, found.namespace, found.name) == (
        "Clone",
        "volumesnapshots",
        "theirs",
        "src",
    )
    assert found.params == {"targetNamespace": "mine", "targetName": "dv"}


async def test_upload_tokens_are_for_those_who_may_ask(cluster: CdiCluster) -> None:
    await _allow(cluster.client, "ada", "mine", ("upload.cdi.kubevirt.io", "uploadtokenrequests"))
    body = {"metadata": {"name": "t"}, "spec": {"pvcName": "claim"}}
    code, answer, _ = await _ask(cluster, "POST", _TOKENS, body, "ada")
    found = (await _verifier(cluster.client)).verify(answer["status"]["token"])
    assert (code, found.operation, found.namespace, found.name) == (200, "Upload", "mine", "claim")
    assert (await _ask(cluster, "POST", _TOKENS.replace("mine", "theirs"), body, "ada"))[0] == 403
    assert (await _ask(cluster, "POST", _TOKENS, body, "bob"))[0] == 403


async def test_nobody_gets_in_past_the_api_server(cluster: CdiCluster) -> None:
    tls = ssl.create_default_context(cadata=cluster.authority)
    headers = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    found = {}
    async with aiohttp.ClientSession(headers=headers) as session:
        for method, path in _DIRECT:
            url = f"https://127.0.0.1:{cluster.port}{path}"
            request = session.request(method, url, json={}, ssl=tls, server_hostname="cdi-api.cdi.svc")
            async with request as answer:
                found[method, path] = answer.status
    assert found == _DIRECT


async def test_claims_with_the_label_are_completed(cluster: CdiCluster) -> None:
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "sc", "annotations": {"storageclass.kubevirt.io/is-default-virt-class": "true"}},
        "provisioner": "test",
    }
    await cluster.client.create(core.STORAGE_CLASSES, storage_class)
    sets = [{"accessModes": ["ReadWriteMany"], "volumeMode": "Filesystem"}]
    profile = {
        "apiVersion": resources.STORAGE_PROFILES.api_version,
        "kind": "StorageProfile",
        "metadata": {"name": "sc"},
        "spec": {},
    }
    await cluster.client.create(resources.STORAGE_PROFILES, profile)
    status = {"status": {"claimPropertySets": sets}}
    await cluster.client.patch(resources.STORAGE_PROFILES, "sc", status, type="merge", subresource="status")
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "claim", "labels": {"cdi.kubevirt.io/applyStorageProfile": "true"}},
        "spec": {**_GIB, "volumeMode": "FromStorageProfile"},
    }
    made = await cluster.client.create(core.PERSISTENT_VOLUME_CLAIMS, claim, "mine")
    assert made["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1138166334"}},
        "storageClassName": "sc",
        "volumeMode": "Filesystem",
    }


async def test_fields_without_effect_are_warned_of(cluster: CdiCluster) -> None:
    patch = {"spec": {"config": {"dataVolumeTTLSeconds": 5}}}
    code, _, warning = await _ask(cluster, "PATCH", "/apis/cdi.kubevirt.io/v1beta1/cdis/cdi", patch)
    assert code == 200
    assert "spec.config.dataVolumeTTLSeconds: accepted, but has no effect yet" in warning
