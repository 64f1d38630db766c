"""What users may ask for, what they get when they do not say, and the words of refusals."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.virtplane.compute.apiserver.admission.answers import (
    MUTATE,
    ask,
    causes,
    defaulted,
    instance,
    machine,
)

from kubecore.json import JsonObject


@pytest.mark.feature("VML-01")
async def test_running_and_run_strategy_exclude_each_other() -> None:
    both = await causes(machine(running=True, runStrategy="Always"), "/virtualmachines-validate")
    assert both == [("spec.running", "Running and RunStrategy are mutually exclusive. Note that Running is"
                     " deprecated, please use RunStrategy instead")]  # fmt: skip
    for alone in ({"running": True}, {"runStrategy": "Always"}):
        assert await causes(machine(**alone), "/virtualmachines-validate") == []


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


@pytest.mark.feature("MON-45", "MON-46", "MON-47", "MON-48")
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
    answer = await ask(MUTATE, instance(domain={"cpu": cpu}))
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
    answer = await ask("/virtualmachines-validate", asked)
    assert answer.status is not None
    assert answer.status["message"] == (
        'spec.template.metadata.labels.a in body must be of type string: "number",'
        " spec.template.metadata.odd in body is a forbidden property"
    )
