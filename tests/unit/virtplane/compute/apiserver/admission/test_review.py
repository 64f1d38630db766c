"""The webhooks on requests of our own."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.json import JsonObject
from kubecore.patch.jsonpatch import apply_json_patch
from virtplane.api.fields.instance import INSTANCE
from virtplane.api.fields.state import State

from .reviewing import COMPONENT, Objects, ask, config, instance, machine


async def test_an_unknown_path_is_refused() -> None:
    answer = await ask("/nothing", instance())
    assert not answer.allowed
    assert answer.status and answer.status["code"] == 404


async def test_more_than_ten_problems_are_counted() -> None:
    disks = [{"name": f"d{index}", "disk": {}} for index in range(12)]
    answer = await ask(
        "/virtualmachineinstances-validate-create",
        instance(architecture="amd64", domain={"devices": {"disks": disks}}),
    )
    assert answer.status
    assert len(answer.status["details"]["causes"]) == 10
    assert answer.status["message"].endswith(", and 2 more validation errors")


async def test_only_components_change_the_spec_of_an_instance() -> None:
    old, new = instance(), instance(terminationGracePeriodSeconds=5)
    path = "/virtualmachineinstances-validate-update"
    refused = await ask(path, new, old)
    assert refused.status and refused.status["message"] == "update of VMI object is restricted"
    assert (await ask(path, new, old, user=COMPONENT)).allowed


async def test_a_users_change_of_the_status_is_undone() -> None:
    old = {**instance(), "status": {"phase": "Running"}}
    new = {**instance(), "status": {"phase": "Failed"}}
    answer = await ask("/virtualmachineinstances-mutate", new, old)
    assert apply_json_patch(new, list(answer.patches))["status"] == {"phase": "Running"}
    assert not (await ask("/virtualmachineinstances-mutate", new, old, user=COMPONENT)).patches


async def test_a_users_status_is_dropped_on_creation() -> None:
    forged = {
        "phase": "Running",
        "nodeName": "victim",
        "runtimeUser": 0,
        "migrationState": {"targetNode": "victim", "migrationUid": "u"},
        "activePods": {"p": "victim"},
        "selinuxContext": "system_u:system_r:spc_t:s0",
    }
    path = "/virtualmachineinstances-mutate"
    new = {**instance(), "status": forged}
    status = apply_json_patch(new, list((await ask(path, new)).patches))["status"]
    assert status["phase"] == "Pending"
    assert status["runtimeUser"] == 107
    assert not {"nodeName", "migrationState", "activePods", "selinuxContext"} & set(status)
    revision = {"virtualMachineRevisionName": "r"}
    of_controller = {**instance(), "status": revision}
    answer = await ask(path, of_controller, user=COMPONENT)
    assert apply_json_patch(of_controller, list(answer.patches))["status"].items() >= revision.items()


async def test_memory_headroom_is_given_to_large_guests() -> None:
    answer = await ask("/virtualmachineinstances-mutate", instance(domain={"memory": {"guest": "2Gi"}}))
    spec = apply_json_patch(instance(), list(answer.patches))["spec"]
    assert spec["domain"]["memory"]["maxGuest"] == "8Gi"


async def test_a_machine_that_is_going_is_let_go() -> None:
    going = machine(runStrategy="Nonsense")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert (await ask("/virtualmachines-validate", going, going)).allowed


@pytest.mark.feature("VMC-23")
async def test_what_an_instance_type_gives_may_not_be_set() -> None:
    lookups = Objects(
        (
            "virtualmachineclusterinstancetypes",
            {"metadata": {"name": "small"}, "spec": {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}},
        )
    )
    answer = await ask("/virtualmachines-validate", machine(instancetype={"name": "small"}), lookups=lookups)
    assert answer.status
    assert answer.status["details"]["causes"][0]["field"] == "spec.template.spec.domain.memory.guest"


async def test_a_preference_can_require_more_than_there_is() -> None:
    lookups = Objects(
        (
            "virtualmachineclusterpreferences",
            {"metadata": {"name": "big"}, "spec": {"requirements": {"memory": {"guest": "4Gi"}}}},
        )
    )
    answer = await ask("/virtualmachines-validate", machine(preference={"name": "big"}), lookups=lookups)
    assert answer.status
    assert answer.status["message"] == (
        "failure checking preference requirements: insufficient Memory resources of 128Mi"
        " provided by VirtualMachine, preference requires 4Gi"
    )


@pytest.mark.parametrize(
    ("strategy", "allowed"), [("Always", True), ("Sometimes", False), ("WaitAsReceiver", True)]
)
async def test_run_strategies_are_known(strategy: str, allowed: bool) -> None:
    assert (await ask("/virtualmachines-validate", machine(runStrategy=strategy))).allowed is allowed


async def test_running_is_warned_of() -> None:
    both = machine()
    del both["spec"]["runStrategy"]
    both["spec"]["running"] = True
    answer = await ask("/virtualmachines-validate", both)
    assert answer.allowed
    assert answer.warnings == ("spec.running is deprecated, please use spec.runStrategy instead.",)


@pytest.mark.parametrize("kind", ["VirtualMachine", "VirtualMachinePool"])
async def test_template_of_a_disk_that_cannot_be_imported_is_warned_of(kind: str) -> None:
    vddk = {"url": "https://vcenter.example", "uuid": "u", "backingFile": "[ds] a.vmdk", "secretRef": "s"}
    vddk["thumbprint"] = "aa"
    pvc = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    templates = [
        {"metadata": {"name": name}, "spec": {"source": source, "pvc": pvc}}
        for name, source in (("a", {"blank": {}}), ("b", {"vddk": vddk}))
    ]
    volumes = [{"name": name, "dataVolume": {"name": name}} for name in ("a", "b")]
    disks: list[JsonObject] = [{"name": name, "disk": {}} for name in ("a", "b")]
    using = instance(domain={"devices": {"disks": disks}}, volumes=volumes)["spec"]
    document = machine(dataVolumeTemplates=templates, template={"spec": using})
    path, field = "/virtualmachines-validate", "spec"
    if kind == "VirtualMachinePool":
        document = _grouped(kind, virtualMachineTemplate=_labelled(document))
        path, field = "/virtualmachinepool-validate", "spec.virtualMachineTemplate.spec"
    answer = await ask(path, document)
    assert answer.allowed, answer.status
    says = "the import fails unless its image has the vddk plug-in of nbdkit, which ours has not"
    assert answer.warnings == (f"{field}.dataVolumeTemplates[1].spec.source.vddk.url: {says}",)


async def test_fields_without_effect_are_warned_of_unless_a_component_writes() -> None:
    wanted = instance(architecture="amd64", domain=_FLUSH)
    path = "/virtualmachineinstances-validate-create"
    assert "spec.domain.features.hyperv.tlbflush.direct" in (await ask(path, wanted)).warnings[0]
    assert not (await ask(path, wanted, user=COMPONENT)).warnings


async def test_a_migration_needs_an_instance_that_can_move() -> None:
    migration = {
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "m"},
        "spec": {"vmiName": "v"},
    }
    path = "/migration-validate-create"
    missing = await ask(path, migration)
    assert missing.status and missing.status["message"] == 'the VMI "ns/v" does not exist'
    condition = {"type": "LiveMigratable", "status": "False", "reason": "R", "message": "m"}
    stuck = ("virtualmachineinstances", {**instance(), "status": {"conditions": [condition]}})
    answer = await ask(path, migration, lookups=Objects(stuck))
    assert answer.status and answer.status["message"] == "Cannot migrate VMI, Reason: R, Message: m"
    assert (await ask(path, migration, lookups=Objects(("virtualmachineinstances", instance())))).allowed


async def test_a_migration_gets_its_label_and_finalizer() -> None:
    migration = {"metadata": {"name": "m"}, "spec": {"vmiName": "v"}}
    answer = await ask("/migration-mutate-create", migration)
    metadata = apply_json_patch(migration, list(answer.patches))["metadata"]
    assert metadata["labels"] == {"kubevirt.io/vmi-name": "v"}
    assert metadata["finalizers"] == ["kubevirt.io/migrationJobFinalize"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"source": {"kind": "VirtualMachine"}}, "missing apiGroup"),
        ({"source": {"apiGroup": "apps", "kind": "VirtualMachine"}}, "invalid apiGroup"),
        ({"source": {"apiGroup": "kubevirt.io", "kind": "Pod"}}, "invalid kind"),
        ({"source": {}, "failureDeadline": "soon"}, 'time: invalid duration "soon"'),
    ],
)
async def test_a_snapshot_is_of_a_machine(spec: JsonObject, message: str) -> None:
    answer = await ask("/virtualmachinesnapshots-validate", {"metadata": {"name": "s"}, "spec": spec})
    assert answer.status and answer.status["message"] == message


async def test_clones_without_a_target_get_one() -> None:
    clone = {"metadata": {"name": "c"}, "spec": {"source": {"kind": "VirtualMachine", "name": "a"}}}
    answer = await ask("/vm-clone-mutate-create", clone)
    target = apply_json_patch(clone, list(answer.patches))["spec"]["target"]
    assert target["name"].startswith("clone-a-")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, "maxUnavailable must be greater than 0"),
        ("50", "maxUnavailable percentage must end with %"),
        ("150%", "maxUnavailable percentage value 150 must be between 1 and 100"),
    ],
)
async def test_a_pool_says_how_many_may_be_missing(value: object, message: str) -> None:
    pool = {
        "kind": "VirtualMachinePool",
        "metadata": {"name": "p"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "virtualMachineTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": machine()["spec"]},
            "maxUnavailable": value,
        },
    }
    answer = await ask("/virtualmachinepool-validate", pool)
    assert answer.status and answer.status["message"] == message


_FLUSH: JsonObject = {
    "features": {"hyperv": {"vpindex": {}, "tlbflush": {"enabled": True, "direct": {"enabled": True}}}}
}


def _grouped(kind: str, **spec: Any) -> JsonObject:
    """Several machines or instances with the label `app`."""
    selector = {"matchLabels": {"app": "a"}}
    return {"kind": kind, "metadata": {"name": "g"}, "spec": {"selector": selector, **spec}}


def _labelled(document: JsonObject) -> JsonObject:
    return {"metadata": {"labels": {"app": "a"}}, "spec": document["spec"]}


def _typed(**spec: Any) -> JsonObject:
    return {"metadata": {"name": "t"}, "spec": spec}


_SIZES = {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}}


@pytest.mark.parametrize(
    ("path", "document", "field"),
    [
        (
            "/virtualmachines-validate",
            machine(template={"spec": instance(domain=_FLUSH)["spec"]}),
            "spec.template.spec.domain.features.hyperv.tlbflush.direct",
        ),
        (
            "/virtualmachineinstances-validate-create",
            instance(domain=_FLUSH, architecture="amd64"),
            "spec.domain.features.hyperv.tlbflush.direct",
        ),
        (
            "/virtualmachinereplicaset-validate",
            _grouped("VirtualMachineInstanceReplicaSet", template=_labelled(instance(domain=_FLUSH))),
            "spec.template.spec.domain.features.hyperv.tlbflush.direct",
        ),
        (
            "/virtualmachinepool-validate",
            _grouped(
                "VirtualMachinePool",
                virtualMachineTemplate=_labelled(machine(template={"spec": instance(domain=_FLUSH)["spec"]})),
            ),
            "spec.virtualMachineTemplate.spec.template.spec.domain.features.hyperv.tlbflush.direct",
        ),
        (
            "/vmipreset-validate",
            _grouped("VirtualMachineInstancePreset", domain={"devices": {}, **_FLUSH}),
            "spec.domain.features.hyperv.tlbflush.direct",
        ),
        *(
            (
                f"/virtualmachine{scope}instancetypes-validate",
                _typed(**_SIZES, launchSecurity={"snp": {}}),
                "spec.launchSecurity.snp",
            )
            for scope in ("", "cluster")
        ),
        *(
            (
                f"/virtualmachine{scope}preferences-validate",
                _typed(preferredLaunchSecurity={"snp": {}}),
                "spec.preferredLaunchSecurity.snp",
            )
            for scope in ("", "cluster")
        ),
        ("/migration-policy-validate-create", _typed(allowPostCopy=True, selectors={}), "spec.allowPostCopy"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("/") else "",
)
async def test_every_kind_warns_of_fields_without_effect(path: str, document: JsonObject, field: str) -> None:
    settings = config("GPU", "HostDevices")
    answer = await ask(path, document, settings=settings)
    assert answer.allowed, answer.status
    assert f"{field}: accepted, but has no effect yet" in answer.warnings
    assert len(set(answer.warnings)) == len(answer.warnings)
    silent = (await ask(path, document, settings=settings, user=COMPONENT)).warnings
    assert not [text for text in silent if "has no effect" in text]


@pytest.mark.parametrize("path", [path for path, each in INSTANCE.items() if each.state is State.REFUSED])
async def test_fields_that_are_said_to_be_refused_are(path: str) -> None:
    for binding, is_allowed in (("masquerade", True), (path.rpartition(".")[2], False)):
        devices = {"interfaces": [{"name": "default", binding: {}}]}
        networks = [{"name": "default", "pod": {}}]
        vmi = instance(domain={"devices": devices}, networks=networks, architecture="amd64")
        vm = machine(template={"spec": vmi["spec"]})
        assert (await ask("/virtualmachineinstances-validate-create", vmi)).allowed is is_allowed
        assert (await ask("/virtualmachines-validate", vm)).allowed is is_allowed


async def test_what_an_instance_type_brings_along_in_vain_is_warned_of_on_the_machine() -> None:
    flush = {"enabled": True, "direct": {"enabled": True}}
    given = {"metadata": {"name": "t"}, "spec": {"features": {"preferredHyperv": {"tlbflush": flush}}}}
    lookups = Objects(("virtualmachineclusterpreferences", given))
    vm = machine(preference={"name": "t"}, template={"spec": {"domain": {"devices": {}}}})
    text = "spec.template.spec.domain.features.hyperv.tlbflush.direct: accepted, but has no effect yet"
    warnings = (await ask("/virtualmachines-validate", vm, lookups=lookups)).warnings
    assert warnings == (f"{text} (from instance type or preference)",)
    assert (await ask("/virtualmachines-validate", vm, lookups=lookups, user=COMPONENT)).warnings == ()


@pytest.mark.parametrize(
    ("path", "document", "problem"),
    [
        ("/virtualmachinepool-validate", {"metadata": {}}, "Object missing required field `spec`"),
        (
            "/virtualmachinesnapshots-validate",
            {"spec": {"source": {}}, "metadata": {"name": 1}},
            "metadata.name: Expected `str`, got `int`",
        ),
        (
            "/virtualmachinesnapshots-validate",
            {"spec": {}},
            "spec: Object missing required field `source`",
        ),
        (
            "/vm-clone-validate-create",
            {"spec": {"source": []}},
            "spec.source: Expected `object`, got `array`",
        ),
        (
            "/plugin-validate",
            {"spec": {"domainHooks": [1]}},
            "spec.domainHooks[0]: Expected `object`, got `int`",
        ),
    ],
)
async def test_documents_that_come_past_the_definitions_are_refused_with_the_field_that_does_not_fit(
    path: str, document: JsonObject, problem: str
) -> None:
    answer = await ask(path, document, settings=config("Plugins", "Snapshot"))
    assert not answer.allowed and answer.status is not None
    assert answer.status["code"] == 400 and answer.status["message"].endswith(problem)


async def test_a_selector_that_makes_no_sense_is_no_fault_of_the_server() -> None:
    """Nothing checks selectors of presets before somebody creates an instance."""
    expression = {"key": "a", "operator": "Gt", "values": ["1"]}
    preset = {"metadata": {"name": "p"}, "spec": {"selector": {"matchExpressions": [expression]}}}
    lookups = Objects(("virtualmachineinstancepresets", preset))
    answer = await ask("/virtualmachineinstances-mutate", instance(), lookups=lookups)
    assert not answer.allowed and answer.status is not None
    assert answer.status["message"] == '"Gt" is not a valid label selector operator'
