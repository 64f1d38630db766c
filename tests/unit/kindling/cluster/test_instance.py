"""Layouts, certificates, images and supervision of instances."""

from __future__ import annotations

import ipaddress
import tarfile
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.support.roles import rights

from kindling.apiserver import main
from kindling.apiserver.registry.admission import AuthorizationQuery
from kindling.apiserver.registry.context import UserInfo
from kindling.cluster import (
    bringup,
    certificates,
    components,
    kubeconfigs,
    machine,
    node_network,
    oci,
    supervisor,
)
from kindling.cluster import instance as instances
from kindling.cluster.containerd import render_config
from kindling.cluster.errors import SetupError
from kindling.cluster.image_names import HOST_REPOSITORY
from kindling.cluster.processes import ProcessSpec, api_server_arguments
from kubecore.client import load_kubeconfig


@pytest.fixture
def made(tmp_path: Path) -> instances.Instance:
    return instances.Instance(tmp_path, "0a0b0c0d", "10.70.0.0/16", 6443, ("node01", "node02"), mtu=1400)


@pytest.fixture
def dual(made: instances.Instance) -> instances.Instance:
    return replace(made, subnet6="fd6b:a0b:c0d::/48", has_ipv6=True)


def test_every_name_and_address_follows_from_id_and_subnet(made: instances.Instance) -> None:
    assert made.bridge == "kd0a0b0c0d"
    assert len(made.node("node02").host_link) <= 15
    assert made.gateway == "10.70.0.1"
    assert made.node("node02").address == "10.70.0.12"
    assert made.node("node02").pod_cidrs == ("10.70.2.0/24",)
    assert made.kubernetes_service == "10.70.240.1"
    services = ipaddress.IPv4Network(made.service_cidrs[0])
    assert not any(services.overlaps(ipaddress.IPv4Network(node.pod_cidrs[0])) for node in made.nodes())
    with pytest.raises(SetupError):
        made.node("node03")


def test_nodes_pods_and_services_have_addresses_of_both_families(dual: instances.Instance) -> None:
    node = dual.node("node02")
    assert node.addresses == ("10.70.0.12", "fd6b:a0b:c0d::c")
    assert node.pod_cidrs == ("10.70.2.0/24", "fd6b:a0b:c0d:2::/64")
    assert node.pod_gateways == ("10.70.2.1", "fd6b:a0b:c0d:2::1")
    assert dual.service_cidrs == ("10.70.240.0/20", "fd6b:a0b:c0d:f0::/112")
    assert dual.gateways == ("10.70.0.1", "fd6b:a0b:c0d::1")
    assert (dual.kubernetes_service, dual.dns_service) == ("10.70.240.1", "10.70.240.10")
    hosts = {leaf.name: leaf.hosts for leaf in certificates.leaves(dual)}
    assert hosts["node-node02-server"] == ("node02", *node.addresses)


def test_a_taken_ipv6_subnet_is_avoided() -> None:
    first = instances.choose_subnet6("0a0b0c0d", [])
    assert first == "fd6b:a0b:c0d::/48"
    taken = [ipaddress.IPv6Network(first)]
    assert instances.choose_subnet6("0a0b0c0d", taken) == "fd6c:a0b:c0d::/48"
    with pytest.raises(SetupError):
        instances.choose_subnet6("0a0b0c0d", [ipaddress.IPv6Network("fd00::/8")])


@pytest.mark.parametrize(
    ("before", "asked", "machine_has_it", "subnets"),
    [
        ({}, None, True, ("10.70.0.0/16", "fd6b:a0b:c0d::/48")),
        ({}, None, False, ("10.70.0.0/16",)),
        ({}, "ipv4", True, ("10.70.0.0/16",)),
        ({"ip_family": "ipv4"}, None, True, ("10.70.0.0/16",)),
        ({"ip_family": "ipv4"}, "dual", True, ("10.70.0.0/16", "fd6b:a0b:c0d::/48")),
        ({"subnet6": "fd6b:9::/48", "has_ipv6": True}, None, True, ("10.70.0.0/16", "fd6b:9::/48")),
        ({"subnet6": "fd6b:9::/48", "has_ipv6": True}, None, False, ("10.70.0.0/16",)),
    ],
)
def test_a_cluster_has_the_families_of_its_machine(
    made: instances.Instance,
    monkeypatch: pytest.MonkeyPatch,
    before: dict[str, Any],
    asked: str | None,
    machine_has_it: bool,
    subnets: tuple[str, ...],
) -> None:
    monkeypatch.setattr(machine, "has_ipv6", lambda: machine_has_it)
    monkeypatch.setattr(machine, "used_ipv6_networks", list)
    monkeypatch.setattr(instances, "registered", list)
    options = bringup.UpOptions(made.state, ip_family=asked)
    settled = bringup._with_families(replace(made, **before), options)
    assert settled.subnets == subnets
    again = bringup._with_families(settled, bringup.UpOptions(made.state))
    assert again == settled


def test_a_cluster_with_ipv6_keeps_it(dual: instances.Instance) -> None:
    with pytest.raises(SetupError, match="its services have such addresses"):
        bringup._with_families(dual, bringup.UpOptions(dual.state, ip_family="ipv4"))


def test_a_taken_subnet_is_avoided() -> None:
    first = instances.choose_subnet("00000000", [])
    assert first == "10.64.0.0/16"
    taken = [ipaddress.IPv4Network("10.64.0.0/15")]
    assert instances.choose_subnet("00000000", taken) == "10.66.0.0/16"
    with pytest.raises(SetupError):
        instances.choose_subnet("00000000", [ipaddress.IPv4Network("10.0.0.0/8")])


def test_certificates_are_made_once_and_name_their_servers(made: instances.Instance) -> None:
    certificates.ensure(made)
    path = made.pki / "apiserver.crt"
    content = path.read_bytes()
    certificate = x509.load_pem_x509_certificate(content)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert ipaddress.ip_address(made.kubernetes_service) in names.get_values_for_type(x509.IPAddress)
    assert (made.pki / "ca.key").stat().st_mode & 0o777 == 0o600
    certificates.ensure(made)
    assert path.read_bytes() == content


def test_the_kubeconfig_is_private_and_loads(made: instances.Instance) -> None:
    certificates.ensure(made)
    kubeconfigs.ensure(made)
    assert made.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert load_kubeconfig(made.kubeconfig).server == "https://127.0.0.1:6443"
    assert (made.state / "token").read_text() in (made.pki / "tokens.csv").read_text()


def test_archives_are_reproducible_and_name_their_image(tmp_path: Path) -> None:
    layer = oci.Layer([("etc", 0o755)], {"etc/x": (b"1", 0o644)}, {"bin": "usr/bin"})
    for name in ("a.tar", "b.tar"):
        oci.write_archive(tmp_path / name, "example.com/x:1", layer, {"Env": ["A=b"]})
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    with tarfile.open(tmp_path / "a.tar") as archive:
        stream = archive.extractfile("index.json")
        assert stream is not None
        index = orjson.loads(stream.read())
    assert index["manifests"][0]["annotations"] == {"io.containerd.image.name": "example.com/x:1"}


def test_the_pod_network_is_configured_without_iptables(made: instances.Instance) -> None:
    document = orjson.loads(node_network.render_cni(made.node("node01"), 1400))
    (plugin,) = document["plugins"]
    assert (plugin["type"], plugin["ipMasq"], plugin["mtu"]) == ("bridge", False, 1400)
    assert plugin["ipam"]["ranges"] == [[{"subnet": "10.70.1.0/24"}]]


def test_pods_get_an_address_and_a_route_of_each_family(dual: instances.Instance) -> None:
    (plugin,) = orjson.loads(node_network.render_cni(dual.node("node01"), 1400))["plugins"]
    assert plugin["ipam"]["ranges"] == [
        [{"subnet": "10.70.1.0/24"}],
        [{"subnet": "fd6b:a0b:c0d:1::/64", "rangeEnd": "fd6b:a0b:c0d:1::fe"}],
    ]
    assert plugin["ipam"]["routes"] == [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
    rules = node_network.host_rules(dual)
    assert "ip6 saddr fd6b:a0b:c0d::/48 ip6 daddr != { fd6b:a0b:c0d::/48, ff00::/8 } masquerade" in rules


def test_the_runtime_keeps_oom_scores_it_may_not_lower() -> None:
    config = render_config(Path("/x"), sandbox_image="i:1", snapshotter="overlayfs", restrict_oom=True)
    assert "restrict_oom_score_adj = true" in config
    assert 'root = "/x/containerd"' in config
    registry = tomllib.loads(config)["plugins"]["io.containerd.grpc.v1.cri"]["registry"]
    assert registry == {"config_path": "/etc/containerd/certs.d"}


def test_the_api_server_listens_where_pods_and_users_reach_it(made: instances.Instance) -> None:
    assert "--bind=127.0.0.1,10.70.0.1" in api_server_arguments(made)


@pytest.mark.parametrize("offered", [True, False])
def test_the_api_server_is_told_what_the_administrator_allows(
    made: instances.Instance, offered: bool
) -> None:
    allowed = replace(
        made, host_image=offered, external_ranges=("192.0.2.0/24",), image_accounts=("product/operator",)
    )
    settings = main.settings_of(main.parser().parse_args(api_server_arguments(allowed)))
    assert settings.external_ranges == ("192.0.2.0/24",)
    assert (settings.service_cidr, settings.cluster_cidr) == ("10.70.240.0/20", "10.70.0.0/16")
    assert settings.reserved_images == (HOST_REPOSITORY,)
    assert settings.reserved_image_accounts == ("product/operator",)


def test_an_instance_of_an_older_version_allows_nothing(made: instances.Instance) -> None:
    made.state.joinpath("instance.json").write_bytes(
        orjson.dumps(
            {"state": str(made.state), "id": made.id, "subnet": made.subnet, "api_port": 1}
            | {"node_names": ["node01"], "host_image": True, "mtu": 1500, "api_flags": []}
        )
    )
    found = instances.load(made.state)
    assert found is not None
    assert (found.external_ranges, found.image_accounts) == ((), ())
    assert (found.subnets, found.ip_family) == ((made.subnet,), "dual")


def test_restarts_are_immediate_first_and_slower_later() -> None:
    assert [supervisor.pause(failures) for failures in range(0, 9)] == [0, 0, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5]


def test_only_processes_with_mark_and_command_line_are_adopted() -> None:
    assert supervisor.find_children("ffffffff", [ProcessSpec("x", ["nothing"])]) == {}


def test_loopback_resolvers_are_not_handed_to_pods() -> None:
    text = "nameserver 127.0.0.53\nnameserver 9.9.9.9\nsearch a b\noptions edns0\n"
    assert components.upstream_resolver(text) == (["9.9.9.9"], ["a", "b"], ["edns0"])


def test_another_directorys_state_is_refused(
    made: instances.Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "REGISTRY", tmp_path / "registry")
    made.save()
    (tmp_path / "moved").mkdir()
    (tmp_path / "instance.json").rename(tmp_path / "moved/instance.json")
    with pytest.raises(SetupError, match="moved since"):
        instances.load(tmp_path / "moved")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"state": 1}'])
def test_a_damaged_layout_is_told_and_not_thrown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "instance.json").write_bytes(content)
    with pytest.raises(SetupError, match=r"instance\.json is damaged"):
        instances.load(tmp_path)


def test_only_the_administrator_is_above_all_roles(made: instances.Instance) -> None:
    certificates.ensure(made)
    masters: set[str] = set()
    clients: set[str] = set()
    servers: set[str] = set()
    for path in made.pki.glob("*.crt"):
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        groups = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        if any(group.value == "system:masters" for group in groups):
            masters.add(path.stem)
        if path.stem.endswith("ca"):
            continue
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert len(list(usage)) == 1
        (clients if ExtendedKeyUsageOID.CLIENT_AUTH in usage else servers).add(path.stem)
    assert masters == {"admin"}
    assert servers == {"apiserver", "metrics-server", "node-node01-server", "node-node02-server"}
    assert clients >= {"apiserver-kubelet-client", "controllers", "metrics", "scheduler", "service-proxy"}


def test_certificates_of_an_older_version_are_made_anew(made: instances.Instance) -> None:
    certificates.ensure(made)
    path = made.pki / "controllers.crt"
    older = certificates.Leaf("controllers", "system:kube-controller-manager", ("system:masters",))
    certificates._make_leaf(made.pki, older)
    certificates.ensure(made)
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    assert not certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)


def test_roles_of_components_neither_create_at_will_nor_become_others() -> None:
    found = rights()
    for name in ("system:kube-controller-manager", "system:kube-scheduler", "system:kube-proxy"):
        user = UserInfo(name, groups=("system:authenticated",))
        for verb, resource, group in (
            ("create", "clusterrolebindings", "rbac.authorization.k8s.io"),
            ("bind", "clusterroles", "rbac.authorization.k8s.io"),
            ("impersonate", "users", ""),
            ("create", "secrets", ""),
            ("create", "nodes", ""),
            ("approve", "signers", "certificates.k8s.io"),
        ):
            query = AuthorizationQuery(user, verb, group, "v1", resource, name="x")
            assert not found.authorize(query)[0], f"{name} may {verb} {resource}"
