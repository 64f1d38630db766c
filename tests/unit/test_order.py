"""What tests share is there as long as they need it, and no longer."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.support import order
from tests.support.clusters import REMOVAL, pytest_runtest_teardown
from tests.support.order import piece_of_work, sort

_TESTS = Path(__file__).parents[1]


def item(module: str, stash: pytest.Stash) -> pytest.Item:
    found = SimpleNamespace(path=_TESTS / module, config=SimpleNamespace(stash=stash))
    return cast(pytest.Item, found)


def test_the_shared_cluster_goes_behind_the_last_long_module_of_a_worker() -> None:
    removed: list[bool] = []
    stash = pytest.Stash()
    guests = item("e2e/test_lifecycle.py", stash)
    pods = item("security/test_tenant_pods.py", stash)
    rules = item("unit/kubecore/cel/test_costs.py", stash)
    # One may not have been brought up.
    pytest_runtest_teardown(guests, rules)
    with ExitStack() as removal:
        removal.callback(removed.append, True)
        stash[REMOVAL] = removal
        pytest_runtest_teardown(guests, pods)
        pytest_runtest_teardown(pods, None)
        assert not removed
        pytest_runtest_teardown(pods, rules)
        assert removed
        pytest_runtest_teardown(rules, rules)
    assert removed == [True]


def test_modules_that_share_a_cluster_of_their_own_are_one_piece_of_work() -> None:
    programs = {piece_of_work(f"tests/e2e/programs/test_{name}.py::test") for name in ("a", "b")}
    assert programs == {"tests/e2e/programs"}
    assert piece_of_work("tests/e2e/test_disks.py::test[a::b]") == "tests/e2e/test_disks.py"


def test_the_shared_cluster_comes_behind_clusters_of_modules_and_before_what_needs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules = ("clients/test_a.py", "e2e/test_b.py", "e2e/test_c.py", "security/test_d.py", "unit/test_e.py")
    items = [item(module, pytest.Stash()) for module in (*modules, "e2e/test_b.py")]
    user = items[1]
    monkeypatch.setattr(order, "_shares_cluster", lambda each: each is user)
    sort(items)
    found = [each.path.name for each in items]
    # A module stays together, also where only one of its tests uses the cluster.
    assert found == ["test_a.py", "test_c.py", "test_d.py", "test_b.py", "test_b.py", "test_e.py"]


@pytest.fixture
def cluster() -> str:
    return "another one"


@pytest.mark.usefixtures("cluster")
def test_another_fixture_of_that_name_is_not_the_shared_cluster(request: pytest.FixtureRequest) -> None:
    assert not order._shares_cluster(request.node)
