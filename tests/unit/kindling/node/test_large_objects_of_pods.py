"""Pods that name more, or larger, objects than a node agent could hold for all of them."""

from __future__ import annotations

import base64
import itertools
import string
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import Mock, patch

import pytest

from kindling.node.backend import ApiBackend
from kindling.node.images.manager import Credential, credentials_of, matching_auth
from kindling.node.pods.downward_api import NodeFacts
from kindling.node.volumes.content import ContentProblem
from kubecore.json import JsonObject
from kubecore.resources import CONFIG_MAPS, SECRETS, ResourceType
from kubecore.testing import MemoryApi

_MIB = 1 << 20
TOO_LARGE = "config maps and secrets that it names have more than [0-9]+ bytes together"


def names(number: int) -> list[str]:
    return [f"n{index}" for index in range(number)]


@asynccontextmanager
async def a_backend(kind: ResourceType, number: int) -> AsyncIterator[tuple[ApiBackend, list[str]]]:
    """A backend, with so many objects of a megabyte each, and what it asks for."""
    api = MemoryApi()
    for name in names(number):
        api.put(kind, {"metadata": {"name": name, "namespace": "ns"}, "data": {"a": "x" * _MIB}})
    async with api.client() as client:
        asked: list[str] = []
        get = client.get

        async def counted(resource: ResourceType, name: str, namespace: str | None = None) -> JsonObject:
            asked.append(name)
            return await get(resource, name, namespace)

        with patch.object(client, "get", counted):
            node = Mock(return_value=Mock(spec=NodeFacts))
            yield ApiBackend(client, Mock(), Mock(), node, list, lambda _: (), Mock()), asked


def pod(**spec: Any) -> JsonObject:
    return {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}


async def test_a_volume_of_a_few_large_config_maps_is_fetched_and_one_of_many_is_refused() -> None:
    sources = [{"configMap": {"name": name}} for name in names(200)]
    async with a_backend(CONFIG_MAPS, 200) as (backend, asked):
        few = await backend.materials(pod(), {"name": "v", "projected": {"sources": sources[:60]}})
        assert len(few.config_maps) == 60
        asked.clear()
        with pytest.raises(ContentProblem, match=TOO_LARGE):
            await backend.materials(pod(), {"name": "v", "projected": {"sources": sources}})
        assert len(asked) < 100


async def test_an_environment_of_many_large_secrets_is_refused() -> None:
    variables = [
        {"name": f"V{name}", "valueFrom": {"secretKeyRef": {"name": name, "key": "a"}}} for name in names(200)
    ]
    async with a_backend(SECRETS, 200) as (backend, asked):
        with pytest.raises(ContentProblem, match=TOO_LARGE):
            await backend.sources(pod(containers=[{"name": "c", "env": variables}]))
        assert len(asked) < 100


async def test_pull_secrets_without_end_are_refused() -> None:
    async with a_backend(SECRETS, 10) as (backend, asked):
        with pytest.raises(ContentProblem, match=TOO_LARGE):
            await backend.pull_secrets(pod(imagePullSecrets=[{"name": name} for name in names(10)]))
        assert len(asked) <= 2
        assert len(await backend.pull_secrets(pod(imagePullSecrets=[{"name": "n0"}]))) == 1


def test_a_pull_secret_of_many_registries_is_searched_in_no_time() -> None:
    letters = itertools.product(string.ascii_lowercase + string.digits, repeat=4)
    registries = ["".join(each) for each in itertools.islice(letters, 100_000)]
    logins = [Credential(name, {"username": "u"}) for name in registries]
    logins.append(Credential("registry.test:5000", {"username": "ann"}))
    begun = time.process_time()
    assert matching_auth("registry.test:5000/disk@sha256:" + "0" * 64, logins) == {"username": "ann"}
    assert time.process_time() - begun < 0.7


def test_a_login_that_is_no_text_is_none() -> None:
    deep = b'{"auths":{"r":{"username":' + b"[" * 1000 + b"]" * 1000 + b',"password":"p"}}}'
    secret = {"data": {".dockerconfigjson": base64.b64encode(deep).decode()}}
    assert credentials_of(secret) == [Credential("r", {"username": "", "password": "p"})]
