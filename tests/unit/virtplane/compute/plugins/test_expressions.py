"""Expressions of plugins: what they may name, what they give, and what is said of wrong ones."""

from __future__ import annotations

import pytest
from lxml import etree

from kubecore.json import JsonObject
from virtplane.compute.domain.xml import Element
from virtplane.compute.plugins import domainmerging, expressions
from virtplane.compute.plugins.domaintypes import parts
from virtplane.compute.plugins.expressions import ExpressionError

VMI: JsonObject = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "vm", "namespace": "ns", "labels": {"app": "test"}},
    "spec": {
        "domain": {"cpu": {"cores": 4}, "devices": {"gpus": [{"name": "g", "deviceName": "d"}]}},
        "terminationGracePeriodSeconds": 0,
    },
}
XML = """<domain type="kvm"><name>ns_vm</name><memory unit="MiB">1024</memory>
<sysinfo type="smbios"><system><entry name="manufacturer">here</entry></system></sysinfo>
<devices><emulator>/usr/bin/qemu</emulator>
<controller type="pci" index="0" model="pcie-root"/>
<disk type="file" device="disk"><source file="/disk.img"><seclabel relabel="no"/></source>
<target dev="vda" bus="virtio"/><address type="pci" domain="0x0000" bus="0x07" slot="0x00"/></disk>
<watchdog model="i6300esb" action="reset"/></devices></domain>"""


def domain() -> Element:
    return etree.fromstring(XML)


def mutated(text: str) -> Element:
    return expressions.mutated(text, VMI, domain())


def at(root: Element, path: str, **namespaces: str) -> list[str]:
    """Texts, and the names of elements, at an XPath."""
    found = root.xpath(path, namespaces=namespaces or None)
    assert isinstance(found, list)
    return [each.tag if isinstance(each, etree._Element) else str(each) for each in found]


@pytest.mark.parametrize(
    "text",
    [
        'vmi.Labels["app"] == "test"',
        'vmi.Name == vmi.ObjectMeta.Name && vmi.Namespace == "ns"',
        "vmi.Spec.Domain.CPU.Cores == 4u && vmi.Spec.Domain.CPU.Threads == 0u",
        'vmi.Spec.Domain.Devices.GPUs[0].DeviceName == "d"',
        "has(vmi.Spec.TerminationGracePeriodSeconds) && vmi.Spec.TerminationGracePeriodSeconds == 0",
        'domainSpec.Type == "kvm" && domainSpec.Name.contains("vm")',
        "has(domainSpec.Memory) && !has(domainSpec.CPU) && !has(domainSpec.Title)",
        "domainSpec.Memory.Value == 1024u",
        'domainSpec.Devices.Disks.exists(d, d.Source.File.File == "/disk.img" && !has(d.Source.Block))',
        "domainSpec.Devices.Disks.all(d, d.Address.PCI.Bus == 7u && has(d.Address.PCI.Slot))",
        'domainSpec.SysInfo[0].SMBIOS.System.Entry[0].Value == "here" && !has(domainSpec.SysInfo[0].FWCfg)',
        "size(domainSpec.Devices.Sounds) == 0",
        '!("no" in vmi.Labels) && vmi.Annotations.size() == 0',
    ],
)
def test_conditions_about_domains_have_the_names_of_go(text: str) -> None:
    assert expressions.domain_condition(text, VMI, domain()) is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('vmi.metadata.name == "vm"', True),
        ("vmi.spec.domain.cpu.cores > 2", True),
        ("vmi.spec.domain.cpu.sockets > 0", False),
        ('"app" in vmi.metadata.labels', True),
        ('has(vmi.metadata.labels.testLabel) && vmi.metadata.labels.testLabel == "match"', False),
        ("has(vmi.spec.domain.memory)", False),
    ],
)
def test_conditions_of_node_hooks_have_the_names_of_the_api(text: str, expected: bool) -> None:
    assert expressions.node_condition(text, VMI) is expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("@@@ invalid", "compiling expression: ERROR: <input>:1:1: Syntax error"),
        ("vmi.Name", "condition must return bool, got string"),
        ("vmi.metadata.name == 'x'", "compiling expression: ERROR: <input>:1:4: undefined field 'metadata'"),
        ("domainSpec.Bogus == 'x'", "undefined field 'Bogus'"),
    ],
)
def test_wrong_conditions_about_domains_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        expressions.check_domain_condition(text)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "vmi.spec.doman.cpu.cores > 2",
            "CEL compilation failed: ERROR: <input>:1:9: undefined field 'doman'",
        ),
        ("vmi.metadata.name", "CEL expression must return bool, got string"),
        ("domainSpec.Name == 'x'", "CEL compilation failed: ERROR: <input>:1:1: undeclared reference"),
    ],
)
def test_wrong_conditions_of_node_hooks_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        expressions.check_node_condition(text)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("bad syntax !!!", "compiling expression: ERROR"),
        ('Domainn{Title: "x"}', "undeclared reference to 'Domainn' (in container 'libvirtxml')"),
        ('Domain{Bogus: "x"}', "undefined field 'Bogus'"),
        (
            'Domain{Memory: "no struct"}',
            "expected type of field 'Memory' is 'libvirtxml.DomainMemory' but provided type is 'string'",
        ),
        ("domainSpec.Name", "mutation must return Domain, got string"),
        ("dyn(1)", "mutation must return Domain, got dyn"),
    ],
)
def test_wrong_mutations_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        expressions.check_mutation(text)
    assert problem in str(raised.value)


def test_a_condition_without_a_value_says_why() -> None:
    with pytest.raises(ExpressionError, match="evaluating expression: no such key: none"):
        expressions.domain_condition('vmi.Labels["none"] == "x"', VMI, domain())
    with pytest.raises(ExpressionError, match="CEL evaluation failed: no such key: none"):
        expressions.node_condition('vmi.metadata.labels["none"] == "x"', VMI)
    with pytest.raises(ExpressionError, match="evaluating expression: no such attribute"):
        expressions.domain_condition('domainSpec.Name == "x"', VMI, None)


def test_an_evaluation_costs_no_more_than_its_limit() -> None:
    pairs = "sets.intersects(lists.range({0}), lists.range({0}))"
    assert expressions.node_condition(pairs.format(3000), VMI) is True
    with pytest.raises(ExpressionError, match="actual cost limit exceeded"):
        expressions.node_condition(pairs.format(4000), VMI)


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ('Domain{Title: "new"}', "title/text()", ["new"]),
        ("Domain{}", "title", []),
        (
            'Domain{Memory: DomainMemory{Value: uint(2), Unit: "GiB"}}',
            "memory/text() | memory/@unit",
            ["GiB", "2"],
        ),
        ('Domain{Memory: DomainMemory{Unit: "KiB"}}', "memory/text() | memory/@unit", ["KiB", "1024"]),
        ('Domain{CPU: DomainCPU{Mode: "host-passthrough"}}', "cpu/@mode", ["host-passthrough"]),
        ('Domain{Devices: DomainDeviceList{Sounds: [DomainSound{Model: "ich6"}]}}', "devices/*/@model", None),
        ("Domain{Memory: null}", "memory", []),
        ('Domain{Type: ""}', "@type", []),
        (
            "Domain{Devices: DomainDeviceList{Controllers: [DomainController{Type: 'usb', Index: uint(0)}]}}",
            "devices/controller/@index | devices/controller/@type",
            ["usb", "0"],
        ),
        (
            "Domain{SysInfo: [DomainSysInfo{FWCfg: DomainSysInfoFWCfg{Entry:"
            " [DomainSysInfoEntry{Name: 'opt/a', Value: 'b'}]}}]}",
            "sysinfo/@type | sysinfo/entry/@name | sysinfo/entry/text()",
            ["fwcfg", "opt/a", "b"],
        ),
        (
            "Domain{Devices: DomainDeviceList{Disks: [DomainDisk{Source: DomainDiskSource{Block:"
            " DomainDiskSourceBlock{Dev: '/dev/b'}}}]}}",
            "devices/disk/@type | devices/disk/source/@dev",
            ["block", "/dev/b"],
        ),
        (
            "Domain{Devices: DomainDeviceList{Watchdogs: domainSpec.Devices.Watchdogs"
            " + [DomainWatchdog{Model: 'itco'}]}}",
            "devices/watchdog/@model",
            ["i6300esb", "itco"],
        ),
        ("Domain{OS: DomainOS{BootMenu: DomainBootMenu{Enable: 'yes'}}}", "os/bootmenu/@enable", ["yes"]),
    ],
)
def test_a_mutation_writes_what_it_names(text: str, path: str, expected: list[str] | None) -> None:
    found = at(mutated(text), path)
    assert found == (expected if expected is not None else ["pcie-root", "ich6", "i6300esb"])


def test_a_mutation_keeps_everything_else() -> None:
    before = domain()
    made = expressions.mutated('Domain{Title: "new"}', VMI, before)
    (title,) = made.findall("title")
    made.remove(title)
    assert etree.tostring(made) == etree.tostring(before) == etree.tostring(domain())


def test_what_expressions_do_not_know_goes_along_with_what_they_pass_on() -> None:
    made = mutated("Domain{Devices: DomainDeviceList{Disks: domainSpec.Devices.Disks}}")
    assert at(made, "devices/disk/source/seclabel/@relabel") == ["no"]


def test_arguments_of_qemu_are_in_its_namespace() -> None:
    made = mutated(
        "Domain{QEMUCommandline: DomainQEMUCommandline{Args: [DomainQEMUCommandlineArg{Value: 'x'}]}}"
    )
    assert at(made, "q:commandline/q:arg/@value", q="http://libvirt.org/schemas/domain/qemu/1.0") == ["x"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('Domain{Title: "a\\u0000b"}', "XML compatible"),
        ("Domain{Title: dyn(1)}", "Title: a value of type string is expected"),
        ("Domain{IOThreads: dyn(true)}", "IOThreads: a value of type uint is expected"),
        ("Domain{Memory: dyn('x')}", "Memory: an object libvirtxml.DomainMemory is expected"),
        ("Domain{SysInfo: dyn(1)}", "SysInfo: a list is expected"),
        (
            "Domain{SysInfo: [DomainSysInfo{SMBIOS: null}]}",
            "an object libvirtxml.DomainSysInfoSMBIOS is expected",
        ),
    ],
)
def test_what_is_no_part_of_a_domain_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        mutated(text)
    assert str(raised.value).startswith("merging mutation result: ") and problem in str(raised.value)


def test_a_mutation_writes_a_bounded_amount() -> None:
    """A list that holds another one twice doubles at every step, although it costs next to nothing."""
    steps = "[DomainSound{Model: 'ich6'}]"
    for name in "abcdefgh":
        steps = f"[{steps}].map({name}, {name} + {name} + {name} + {name})[0]"
    with pytest.raises(ExpressionError, match=f"writes more than {domainmerging.MOST_BYTES} bytes"):
        mutated(f"Domain{{Devices: DomainDeviceList{{Sounds: {steps}}}}}")


def test_every_type_of_the_table_is_reached_from_the_domain() -> None:
    types = {part.type for fields in parts().values() for part in fields.values() if part.is_record}
    shared = {"libvirtxml.DomainDeviceCommon", "libvirtxml.DomainVirtioOptions"}
    assert set(parts()) - types == {"libvirtxml.Domain"} | shared
    assert types <= set(parts())
