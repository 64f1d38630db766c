"""The API server in memory as cdi-deployment has it: with the rights that are installed for its account."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.roles import RestrictedApi, rights

from kubecore.testing import MemoryApi
from virtplane.api import cdi_names
from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.operators.cdi.component_rights import component_rights
from virtplane.operators.cdi.product import Parameters, Settings

_NAMESPACE = "cdi"


def controllers_api(api: MemoryApi) -> RestrictedApi:
    """`api` for the controllers of a CDI in the namespace ``cdi``."""
    settings = Settings(_NAMESPACE, "product:1", "distributed", "1")
    installed = component_rights(Parameters(settings, CDI()))
    account = f"system:serviceaccount:{_NAMESPACE}:{cdi_names.CONTROLLER_ACCOUNT}"
    return RestrictedApi(api, account, rights(installed))


@contextmanager
def for_controllers(api: MemoryApi) -> Iterator[RestrictedApi]:
    """The same, and a check at the end that nothing was refused."""
    restricted = controllers_api(api)
    yield restricted
    assert restricted.refused == []
