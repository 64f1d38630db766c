"""Objects over HTTPS: the operations on any kind, end to end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.apiserver import running_server, sample_definitions

from kubecore import errors
from kubecore.client import Client
from kubecore.resources import CONFIG_MAPS


async def test_an_object_is_created_read_updated_and_deleted(tmp_path: Path) -> None:
    async with running_server(tmp_path, sample_definitions()) as running, running.client() as client:
        created = await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}}, "default")
        assert created["metadata"]["uid"]
        created["data"]["k"] = "w"
        updated = await client.update(CONFIG_MAPS, created)
        assert int(updated["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
        with pytest.raises(errors.StatusError, match="object has been modified"):
            await client.update(CONFIG_MAPS, created)
        found = await client.get(CONFIG_MAPS, "a", "default")
        assert found["data"] == {"k": "w"}
        await client.delete(CONFIG_MAPS, "a", "default")
        with pytest.raises(errors.StatusError, match='configmaps "a" not found'):
            await client.get(CONFIG_MAPS, "a", "default")


async def test_a_watch_shows_what_happens_after_its_resource_version(tmp_path: Path) -> None:
    async with running_server(tmp_path, sample_definitions()) as running, running.client() as client:
        listed = await client.list(CONFIG_MAPS, "default")
        await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, "default")
        await client.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}}, "default", type="merge")
        await client.delete(CONFIG_MAPS, "a", "default")
        seen = []
        async for event in client.watch(
            CONFIG_MAPS, "default", resource_version=listed["metadata"]["resourceVersion"]
        ):
            seen.append(event.type)
            if len(seen) == 3:
                break
        assert seen == ["ADDED", "MODIFIED", "DELETED"]


async def test_a_version_in_a_new_object_is_minded_after_everything_else(tmp_path: Path) -> None:
    metadata = {"name": "a", "resourceVersion": "5"}
    async with running_server(tmp_path, sample_definitions()) as running, running.client() as client:
        with pytest.raises(errors.StatusError, match=r'"A!" is invalid: metadata\.name'):
            await client.create(CONFIG_MAPS, {"metadata": {**metadata, "name": "A!"}}, "default")
        with pytest.raises(errors.StatusError, match="resourceVersion should not be set on objects to be"):
            await client.create(CONFIG_MAPS, {"metadata": metadata}, "default")
        assert await client.create(CONFIG_MAPS, {"metadata": metadata}, "default", dry_run=True)
        assert (await client.list(CONFIG_MAPS, "default"))["items"] == []


@pytest.mark.parametrize(
    ("field_manager", "user_agent", "expected"),
    [
        ("me", "kubectl/v1.36 (linux)", "me"),
        ("", "some tool/v1.2 (linux)", "some tool"),
        ("", "x" * 200, "x" * 128),
    ],
)
async def test_the_manager_is_named_or_taken_from_the_user_agent(
    tmp_path: Path, field_manager: str, user_agent: str, expected: str
) -> None:
    async with running_server(tmp_path, sample_definitions()) as running:
        config = replace(running.config(), user_agent=user_agent, field_manager=field_manager)
        async with Client(config) as client:
            created = await client.create(
                CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}}, "default"
            )
    assert [entry["manager"] for entry in created["metadata"]["managedFields"]] == [expected]
