"""``vmexport``: exports end; none is made, as nothing would serve it."""

from __future__ import annotations

import pytest

from .conftest import FakeServer, Virtctl

_EXPORT = "/apis/export.kubevirt.io/v1/namespaces/default/virtualmachineexports/e"
_UNSERVED = "this server exports nothing yet: a VirtualMachineExport would never be ready"


@pytest.mark.feature("CTL-47")
def test_an_export_is_deleted_if_it_is_there(api: FakeServer, virtctl: Virtctl) -> None:
    result = virtctl("vmexport", "delete", "e")
    said = "VirtualMachineExport 'default/e' deleted successfully\n"
    assert (result.code, result.out) == (0, said)
    assert [(method, path) for method, path, _ in api.requests] == [("DELETE", _EXPORT)]
    api.refuse("DELETE", _EXPORT, 404, "not found")
    api.answers["DELETE", _EXPORT][1]["reason"] = "NotFound"
    result = virtctl("vmexport", "delete", "e")
    assert (result.code, result.out) == (0, "VirtualMachineExport 'default/e' does not exist\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("create e --vm v", _UNSERVED),
        ("Download e --vm v --volume d --output f", _UNSERVED),
        ("download e --manifest", _UNSERVED),
        ("lose e", "invalid function 'lose'"),
        ("create", "accepts 2 arg(s), received 1"),
        (
            "create e",
            "need to specify export kind when attempting to create a VirtualMachineExport"
            " [--pvc|--vm|--snapshot|--vmtemplate]",
        ),
        ("create e --vm v --volume d", "the '--volume' flag is incompatible with 'create'"),
        ("delete e --vm v", "should not specify export kind"),
        ("delete e --keep-vme", "the '--keep-vme' flag is incompatible with 'delete'"),
        ("download e --format zip", "zip is not a valid value, acceptable values are gzip/raw/oci"),
        (
            "download e --manifest-output-format xml",
            "xml is not a valid value, acceptable values are json/yaml",
        ),
        (
            "create e --vm v --pvc p",
            "if any flags in the group [vm snapshot pvc vmtemplate] are set none of the others can be;"
            " [pvc vm] were all set",
        ),
    ],
)
def test_what_cannot_be_exported_makes_nothing(
    api: FakeServer, virtctl: Virtctl, line: str, said: str
) -> None:
    result = virtctl("vmexport", *line.split())
    assert (result.code, result.out, result.err) == (1, "", f"{said}\n")
    assert api.requests == []
