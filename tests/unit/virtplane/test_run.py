"""The command line of components."""

from __future__ import annotations

from collections.abc import Coroutine

import pytest

from kubecore.client import ClientConfig
from kubecore.client.config import Impersonation
from kubecore.client.limits import RequestLimit
from virtplane import run as run_module
from virtplane.api.config import readers_client
from virtplane.components import COMPONENTS, UnknownComponent, load_component
from virtplane.run import client_factory, parse, readers_limits


def test_components_and_defaults_are_read() -> None:
    options = parse(["virt-operator,virt-api", "--namespace", "here", "--layout", "compact"])
    assert options.components == ("virt-operator", "virt-api")
    assert options.namespace == "here"
    assert options.health_port == 8445
    assert parse(["virt-handler"]).health_port == parse(["virt-controller"]).health_port == 8443
    assert not options.require_webhook_certificate
    assert (options.verbosity, parse(["virt-api", "--verbosity", "3"]).verbosity) == (1, 3)
    assert parse(["virt-api", "--require-webhook-certificate"]).require_webhook_certificate


def test_unknown_components_end_with_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse(["virt-nothing"])
    assert end.value.code == 2
    assert "no such component: virt-nothing" in capsys.readouterr().err


def test_a_process_is_called_as_its_first_component(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []

    def stop(work: Coroutine[None, None, None]) -> int:
        work.close()
        return 0

    monkeypatch.setattr(run_module, "name_process", named.append)
    monkeypatch.setattr(run_module, "run_until_stopped", stop)
    assert run_module.main(["virt-operator,virt-api"]) == 0
    assert named == ["virt-operator"]


async def test_components_beside_the_first_act_under_their_own_accounts() -> None:
    options = parse(["virt-operator,virt-api", "--namespace", "ns"])
    make = client_factory(options, ClientConfig(server="https://server.test"), {})
    own, other = make("virt-operator/configuration"), make("virt-api")
    assert own.config.impersonate is None
    assert other.config.impersonate is not None
    assert other.config.impersonate.user == "system:serviceaccount:ns:kubevirt-apiserver"
    await own.close()
    await other.close()


async def test_strangers_who_ask_for_metrics_take_no_requests_of_a_component() -> None:
    options = parse(["virt-operator,virt-api", "--namespace", "ns"])
    limits = {"virt-api": RequestLimit(1, 1), **readers_limits(options)}
    make = client_factory(options, ClientConfig(server="https://server.test"), limits)
    own, reading = make("virt-api"), make(readers_client("virt-api"))
    assert reading.config.impersonate == own.config.impersonate
    assert limits.keys() == {"virt-api", "virt-api/readers", "virt-operator/readers"}
    assert len({id(limit) for limit in limits.values()}) == 3
    await own.close()
    await reading.close()


@pytest.mark.parametrize("components", ["virt-api", "virt-operator,virt-api"])
async def test_tokens_for_displays_are_made_under_an_account_for_that_alone(components: str) -> None:
    options = parse([components, "--namespace", "ns", "--node-name", "node01"])
    client = client_factory(options, ClientConfig(server="https://server.test"), {})("vm-console-proxy")
    assert client.config.impersonate == Impersonation("system:serviceaccount:ns:vm-console-proxy")
    await client.close()


@pytest.mark.parametrize("name", sorted(COMPONENTS))
def test_every_component_can_be_loaded_and_knows_its_name(name: str) -> None:
    assert load_component(name).name == name


def test_loading_an_unknown_component_says_which_there_are() -> None:
    with pytest.raises(UnknownComponent, match="virt-handler"):
        load_component("nothing")
