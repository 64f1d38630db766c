"""Aggregated ClusterRoles in a real API server, whose roles the controllers get their rights from."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from tests.support.apiserver import running_server

from kindling.controllers.accounts.cluster_roles import ClusterRoleAggregation
from kindling.controllers.environment import Environment
from kubecore.client import Client
from kubecore.client.config import Impersonation
from kubecore.resources import CLUSTER_ROLES
from kubecore.runtime import Manager


async def test_the_roles_that_every_cluster_has_get_the_rules_of_those_they_choose(tmp_path: Path) -> None:
    async with running_server(tmp_path) as running, running.client() as admin:
        config = replace(running.config(), impersonate=Impersonation("system:kube-controller-manager"))
        async with Client(config) as client, asyncio.TaskGroup() as group:
            manager = Manager(client)
            ClusterRoleAggregation(Environment(manager))
            controllers = group.create_task(manager.run())
            async with asyncio.timeout(20):
                async for event in admin.watch(CLUSTER_ROLES, field_selector="metadata.name=admin"):
                    rules = event.object.get("rules") or []
                    # One comes from the role that is chosen, the other from those that this one chooses.
                    if {"rolebindings", "pods"} <= {name for rule in rules for name in rule["resources"]}:
                        break
            controllers.cancel()
        found = await admin.get(CLUSTER_ROLES, "admin")
    managers = [entry["manager"] for entry in found["metadata"]["managedFields"]]
    assert "clusterrole-aggregation-controller" in managers
