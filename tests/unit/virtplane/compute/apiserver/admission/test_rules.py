"""What users may ask for, what they get when they do not say, and the words of refusals."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.json import JsonObject
from kubecore.patch import apply_json_patch
from kubecore.resources import ResourceType
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver.admission import Response, review

CREATE = "/virtualmachineinstances-validate-create"
MUTATE = "/virtualmachineinstances-mutate"


class NoObjects:
    """A cluster without anything else."""

    async def get(self, resource: ResourceType, name: str, namespace: str | None = None) -> JsonObject | None:
        return None

    async def list(self, resource: ResourceType, namespace: str | None = None) -> list[JsonObject]:
        return []


async def _ask(path: str, document: JsonObject, config: JsonObject | None = None) -> Response:
    settings = ClusterConfig({"status": {"phase": "Deployed"}, "spec": {"configuration": config or {}}})
    request = {"operation": "CREATE", "namespace": "ns", "object": document, "oldObject": {}, "userInfo": {}}
    return await review(path, request, settings, NoObjects())


def instance(
    *, devices: JsonObject | None = None, domain: JsonObject | None = None, **spec: Any
) -> JsonObject:
    body = {"devices": devices or {}, "memory": {"guest": "128Mi"}, **(domain or {})}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm"},
        "spec": {"architecture": "amd64", "domain": body, **spec},
    }


def machine(**spec: Any) -> JsonObject:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "vm"},
        "spec": {"template": {"spec": instance()["spec"]}, **spec},
    }


async def causes(document: JsonObject, path: str = CREATE) -> list[tuple[str, str]]:
    """Fields and messages of a refusal, each once; empty when the object is accepted."""
    answer = await _ask(path, document)
    if answer.allowed:
        return []
    assert answer.status is not None
    found = [(item["field"], item["message"]) for item in answer.status["details"]["causes"]]
    return list(dict.fromkeys(found))


async def defaulted(document: JsonObject, config: JsonObject | None = None) -> JsonObject:
    answer = await _ask(MUTATE, document, config)
    assert answer.allowed
    result: JsonObject = apply_json_patch(document, list(answer.patches))["spec"]
    return result


@pytest.mark.feature("VML-01")
async def test_running_and_run_strategy_exclude_each_other() -> None:
    both = await causes(machine(running=True, runStrategy="Always"), "/virtualmachines-validate")
    assert both == [("spec.running", "Running and RunStrategy are mutually exclusive. Note that Running is"
                     " deprecated, please use RunStrategy instead")]  # fmt: skip
    for alone in ({"running": True}, {"runStrategy": "Always"}):
        assert await causes(machine(**alone), "/virtualmachines-validate") == []


@pytest.mark.feature("NET-01")
async def test_a_machine_is_on_the_pod_network_unless_it_says_otherwise() -> None:
    spec = await defaulted(instance())
    assert spec["networks"] == [{"name": "default", "pod": {}}]
    assert [card["name"] for card in spec["domain"]["devices"]["interfaces"]] == ["default"]


@pytest.mark.feature("NET-01")
async def test_nothing_is_added_to_networks_that_were_chosen_or_switched_off() -> None:
    second: JsonObject = {
        "devices": {"interfaces": [{"name": "blue", "bridge": {}}]},
        "networks": [{"name": "blue", "multus": {"networkName": "blue"}}],
    }
    assert (await defaulted(instance(**second)))["networks"] == second["networks"]
    off = await defaulted(instance(devices={"autoattachPodInterface": False}))
    assert "networks" not in off and "interfaces" not in off["domain"]["devices"]


def _card(**card: Any) -> JsonObject:
    return instance(
        devices={"interfaces": [{"name": "default", "masquerade": {}, **card}]},
        networks=[{"name": "default", "pod": {}}],
    )


_INTERFACE = "spec.domain.devices.interfaces[0]"


@pytest.mark.feature("NET-09")
@pytest.mark.parametrize("model", ["virtio", "e1000", "pcnet", "rtl8139"])
async def test_cards_have_one_of_the_known_models(model: str) -> None:
    assert await causes(_card(model=model)) == []


@pytest.mark.feature("NET-09")
async def test_an_unknown_model_is_refused() -> None:
    text = f"interface {_INTERFACE}.name uses model 3c509 that is not supported."
    assert await causes(_card(model="3c509")) == [(f"{_INTERFACE}.model", text)]


@pytest.mark.parametrize("binding", ["masquerade", "bridge", "sriov"])
async def test_a_card_has_exactly_one_binding(binding: str) -> None:
    source = {"multus": {"networkName": "n"}} if binding == "sriov" else {"pod": {}}
    card = {"name": "default", binding: {}}
    network = [{"name": "default", **source}]
    assert await causes(instance(devices={"interfaces": [card]}, networks=network)) == []
    text = "logical default interface must have exactly one binding method or binding plugin"
    none = instance(devices={"interfaces": [{"name": "default"}]}, networks=network)
    assert await causes(none) == [(_INTERFACE, text)]
    two = instance(devices={"interfaces": [{**card, "passtBinding": {}}]}, networks=network)
    assert (_INTERFACE, text) in await causes(two)


@pytest.mark.parametrize(
    ("port", "text"),
    [
        ({"port": 0}, "Port field is mandatory."),
        ({"port": 65536}, "Port field must be in range 0 < x < 65536."),
        ({"port": -1}, "Port field must be in range 0 < x < 65536."),
        ({"port": 80, "protocol": "SCTP"}, "Unknown protocol, only TCP or UDP allowed"),
    ],
)
async def test_forwarded_ports_are_ports(port: JsonObject, text: str) -> None:
    assert [message for _, message in await causes(_card(ports=[port]))] == [text]


@pytest.mark.parametrize("port", [1, 65535])
async def test_the_ends_of_the_range_of_ports_are_ports(port: int) -> None:
    assert await causes(_card(ports=[{"port": port}])) == []


@pytest.mark.feature("NET-15")
async def test_cards_and_networks_belong_together_by_name() -> None:
    cards = {"interfaces": [{"name": "red", "bridge": {}}]}
    networks = [{"name": "blue", "multus": {"networkName": "b"}}]
    assert await causes(instance(devices=cards, networks=networks)) == [
        ("spec.networks[0].name", "spec.networks[0].name 'blue' not found."),
        (f"{_INTERFACE}.name", f"{_INTERFACE}.name 'red' not found."),
    ]
    named = [{"name": "red", "multus": {"networkName": "b"}}]
    assert await causes(instance(devices=cards, networks=named)) == []


@pytest.mark.parametrize(
    ("address", "problem"),
    [("de:00:00:00:00:de", ""), ("nonsense", "malformed"), ("de:ad:be:ef:00:00:00:00", "too long")],
)
@pytest.mark.feature("NET-11")
async def test_a_mac_address_is_one_of_ethernet(address: str, problem: str) -> None:
    found = [message for _, message in await causes(_card(macAddress=address))]
    expected = f"interface {_INTERFACE}.name has {problem} MAC address ({address})."
    assert found == ([expected] if problem else [])


def _disk(volume: JsonObject | None = None, **disk: Any) -> JsonObject:
    source = volume or {"containerDisk": {"image": "i"}}
    return instance(devices={"disks": [{"name": "root", **disk}]}, volumes=[{"name": "root", **source}])


_DISK = "spec.domain.devices.disks[0]"


@pytest.mark.feature("VMC-42")
@pytest.mark.parametrize("bus", ["virtio", "sata", "scsi"])
async def test_disks_are_on_one_of_the_known_buses(bus: str) -> None:
    assert await causes(_disk(disk={"bus": bus})) == []


@pytest.mark.feature("VMC-42")
@pytest.mark.parametrize(
    ("bus", "text"),
    [
        ("ide", "IDE bus is not supported"),
        (
            "nvme",
            f"{_DISK} is set with an unrecognized bus nvme, must be one of: [virtio scsi sata usb]",
        ),
    ],
)
async def test_other_buses_are_refused(bus: str, text: str) -> None:
    assert await causes(_disk(disk={"bus": bus})) == [(f"{_DISK}.disk.bus", text)]


@pytest.mark.feature("VMC-41")
async def test_a_volume_shows_as_a_disk_or_a_cdrom_and_not_as_both() -> None:
    assert await causes(_disk(disk={"bus": "virtio"})) == []
    assert await causes(_disk(cdrom={"bus": "sata"})) == []
    text = f"{_DISK} can only have a single target type defined"
    assert await causes(_disk(disk={}, cdrom={"bus": "sata"})) == [(_DISK, text)]
    wrong = "Bus type virtio is invalid for CD-ROM device"
    assert await causes(_disk(cdrom={"bus": "virtio"})) == [(f"{_DISK}.cdrom.bus", wrong)]


@pytest.mark.feature("VML-39")
async def test_boot_orders_begin_with_one_and_are_had_once_over_disks_and_cards() -> None:
    assert await causes(_disk(disk={}, bootOrder=1)) == []
    text = f"{_DISK} must have a boot order > 0, if supplied"
    assert await causes(_disk(disk={}, bootOrder=0)) == [(f"{_DISK}.bootOrder", text)]
    both = _disk(disk={}, bootOrder=1)
    both["spec"]["networks"] = [{"name": "default", "pod": {}}]
    both["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", "masquerade": {}, "bootOrder": 1}]
    where = f"{_INTERFACE}.bootOrder"
    assert await causes(both) == [(where, f"Boot order for {where} already set for a different device.")]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param({"persistentVolumeClaim": {"claimName": "c"}}, marks=pytest.mark.feature("VMC-36")),
        {"dataVolume": {"name": "d"}},
        pytest.param({"containerDisk": {"image": "i"}}, marks=pytest.mark.feature("VMC-39")),
        {"emptyDisk": {"capacity": "1Gi"}},
        {"ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}},
        pytest.param(
            {"cloudInitNoCloud": {"userData": "#cloud-config"}}, marks=pytest.mark.feature("VMC-38")
        ),
        pytest.param(
            {"cloudInitNoCloud": {"networkData": "version: 2"}}, marks=pytest.mark.feature("VMC-38")
        ),
    ],
    ids=lambda source: next(iter(source)),
)
async def test_the_kinds_of_volumes_are_accepted(source: JsonObject) -> None:
    assert await causes(_disk(source, disk={})) == []


async def test_a_volume_has_exactly_one_source() -> None:
    two = {"containerDisk": {"image": "i"}, "emptyDisk": {"capacity": "1Gi"}}
    text = "spec.volumes[0] must have exactly one source type set"
    assert await causes(_disk(two, disk={})) == [("spec.volumes[0]", text)]


@pytest.mark.feature("VMC-59")
async def test_ssh_keys_need_a_way_into_the_guest() -> None:
    def credential(**method: Any) -> JsonObject:
        source = {"secret": {"secretName": "keys"}}
        found = _disk(disk={})
        key = {"sshPublicKey": {"source": source, "propagationMethod": method}}
        found["spec"]["accessCredentials"] = [key]
        return found

    field = "spec.accessCredentials[0].sshPublicKey.propagationMethod"
    assert await causes(credential(noCloud={})) == [
        (
            field,
            "spec.accessCredentials[0] requires a noCloud volume to exist"
            " when the noCloud propagationMethod is in use.",
        )
    ]
    with_volume = credential(noCloud={})
    with_volume["spec"]["volumes"].append({"name": "ci", "cloudInitNoCloud": {"userData": "#"}})
    with_volume["spec"]["domain"]["devices"]["disks"].append({"name": "ci", "disk": {}})
    assert await causes(with_volume) == []
    assert await causes(credential(qemuGuestAgent={"users": ["cloud-user"]})) == []
    users = f"{field}.qemuGuestAgent.users"
    assert await causes(credential(qemuGuestAgent={"users": []})) == [
        (users, "spec.accessCredentials[0] requires at least one user to be present in the users list")
    ]


async def test_policies_of_cpu_features_are_known() -> None:
    def asked(policy: str) -> JsonObject:
        return instance(domain={"cpu": {"features": [{"name": "apic", "policy": policy}]}})

    for policy in ("force", "require", "optional", "disable", "forbid"):
        assert await causes(asked(policy)) == []
    text = "CPU feature apic uses policy maybe that is not supported."
    assert await causes(asked("maybe")) == [("spec.domain.cpu.features[0].policy", text)]


@pytest.mark.feature("VML-52")
@pytest.mark.parametrize("given", [{}, {"machine": {"type": ""}}])
async def test_the_machine_type_defaults_to_the_installations(given: JsonObject) -> None:
    assert (await defaulted(instance(domain=given)))["domain"]["machine"]["type"] == "q35"


@pytest.mark.feature("VML-52")
async def test_a_machine_type_that_is_not_allowed_is_refused() -> None:
    (found,) = await causes(instance(domain={"machine": {"type": "isapc"}}))
    assert found[0] == "spec.domain.machine.type"
    assert found[1].startswith("spec.domain.machine.type is not supported: isapc (allowed values: [")


@pytest.mark.parametrize(
    ("model", "cluster", "expected"),
    [
        ("Haswell", "EPYC", "Haswell"),
        ("", "EPYC", "EPYC"),
        ("", "", "host-model"),
    ],
)
async def test_a_cpu_model_is_the_machines_own_or_the_installations_or_the_hosts(
    model: str, cluster: str, expected: str
) -> None:
    config = {"cpuModel": cluster} if cluster else {}
    domain = {"cpu": {"model": model}} if model else {}
    assert (await defaulted(instance(domain=domain), config))["domain"]["cpu"]["model"] == expected


@pytest.mark.feature("MON-47", "MON-48")
async def test_probes_get_the_defaults_of_kubernetes() -> None:
    spec = await defaulted(instance(readinessProbe={"tcpSocket": {"port": 80}}))
    assert spec["readinessProbe"] == {
        "tcpSocket": {"port": 80},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


async def test_a_probe_has_exactly_one_test() -> None:
    both = instance(livenessProbe={"tcpSocket": {"port": 1}, "guestAgentPing": {}})
    assert ("spec.livenessProbe", "spec.livenessProbe must have exactly one probe type set") in await causes(
        both
    )
    (missing,) = await causes(instance(livenessProbe={"periodSeconds": 5}))
    assert missing[0] == "spec.livenessProbe"


@pytest.mark.feature("VML-49")
async def test_a_watchdog_resets_the_guest_unless_told_otherwise() -> None:
    spec = await defaulted(instance(devices={"watchdog": {"name": "dog"}}))
    assert spec["domain"]["devices"]["watchdog"] == {"name": "dog", "i6300esb": {"action": "reset"}}
    for action in ("poweroff", "reset", "shutdown"):
        watchdog = {"name": "dog", "i6300esb": {"action": action}}
        assert await causes(instance(devices={"watchdog": watchdog})) == []


@pytest.mark.feature("NOD-03")
@pytest.mark.parametrize("strategy", ["LiveMigrate", "LiveMigrateIfPossible", "None"])
async def test_eviction_strategies_are_known(strategy: str) -> None:
    assert await causes(instance(evictionStrategy=strategy)) == []


@pytest.mark.feature("NOD-03")
async def test_an_unknown_eviction_strategy_is_refused() -> None:
    text = "spec.evictionStrategy is set with an unrecognized option: Hope"
    assert await causes(instance(evictionStrategy="Hope")) == [("spec.evictionStrategy", text)]


@pytest.mark.feature("NOD-04")
@pytest.mark.parametrize("strategy", ["LiveMigrate", "None"])
async def test_the_installation_has_an_eviction_strategy_for_all(strategy: str) -> None:
    spec = await defaulted(instance(), {"evictionStrategy": strategy})
    assert spec["evictionStrategy"] == strategy


@pytest.mark.feature("VML-43")
async def test_secure_boot_needs_system_management_mode() -> None:
    def firmware(**efi: Any) -> JsonObject:
        return {"firmware": {"bootloader": {"efi": efi}}}

    refused = await causes(instance(domain=firmware(secureBoot=True)))
    assert [field for field, _ in refused] == ["spec.domain"]
    assert "SMM" in refused[0][1]
    with_mode = {**firmware(secureBoot=True), "features": {"smm": {"enabled": True}, "acpi": {}}}
    assert await causes(instance(domain=with_mode)) == []
    assert await causes(instance(domain=firmware(secureBoot=False))) == []


async def test_specs_are_stored_as_kubevirts_types_write_them() -> None:
    given = instance(
        domain={
            "memory": {"guest": "0.5Gi"},
            "chassis": {"version": ""},
            "resources": {"limits": {"a/b": "1.5"}},
        },
        devices={"disks": [{"name": "root"}], "interfaces": []},
        nodeSelector={},
        volumes=[{"name": "root", "hostDisk": {"path": "/p", "type": "Disk"}}],
    )
    spec = await defaulted(given)
    assert spec["domain"]["memory"]["guest"] == "512Mi"
    assert spec["domain"]["resources"] == {"limits": {"a/b": "1500m"}}
    assert (spec["domain"]["chassis"], "nodeSelector" in spec) == ({}, False)
    assert spec["volumes"][0]["hostDisk"]["capacity"] == "0"


@pytest.mark.parametrize(
    ("cpu", "said"),
    [
        ({"cores": -1}, "json: cannot unmarshal number -1 into a number of 0 to 4294967295"),
        ({"cores": 1.5}, 'spec.domain.cpu.cores in body must be of type int64: "float64"'),
        ({"model": 1}, 'spec.domain.cpu.model in body must be of type string: "number"'),
    ],
)
async def test_numbers_that_kubevirts_types_cannot_hold_are_refused(cpu: JsonObject, said: str) -> None:
    answer = await _ask(MUTATE, instance(domain={"cpu": cpu}))
    assert answer.status is not None
    assert (answer.allowed, answer.status["message"]) == (False, said)


async def test_selectors_of_affinity_have_valid_labels() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "x" * 64}}}
    rules = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    field = "spec.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector.matchLabels"
    text = f'{field}: Invalid value: "{"x" * 64}": must be no more than 63 characters'
    assert await causes(instance(affinity=rules)) == [(field, text)]


async def test_metadata_of_templates_has_known_members() -> None:
    asked = machine(runStrategy="Halted")
    asked["spec"]["template"]["metadata"] = {"labels": {"a": 1}, "odd": "x"}
    answer = await _ask("/virtualmachines-validate", asked)
    assert answer.status is not None
    assert answer.status["message"] == (
        'spec.template.metadata.labels.a in body must be of type string: "number",'
        " spec.template.metadata.odd in body is a forbidden property"
    )
