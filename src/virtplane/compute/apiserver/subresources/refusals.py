"""Why a subresource of a VM or instance refuses: pure checks that raise the API's errors."""

from __future__ import annotations

from kubecore import errors
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta

MACHINE = "virtualmachine.kubevirt.io"
INSTANCE = "virtualmachineinstance.kubevirt.io"
_FINAL = ("Succeeded", "Failed")


def machine_conflict(name: str, text: str) -> StatusError:
    """A VM is not in the state that the request needs."""
    return errors.conflict(MACHINE, name, text)


def instance_conflict(vmi: JsonObject, text: str) -> StatusError:
    """An instance is not in the state that the request needs."""
    return errors.conflict(INSTANCE, meta.name(vmi), text)


def phase(vmi: JsonObject | None) -> str:
    """The instance's phase, empty without one."""
    return get_str(vmi, "status", "phase")


def is_live(vmi: JsonObject | None) -> bool:
    """Whether there is an instance that has not ended."""
    return vmi is not None and phase(vmi) not in _FINAL


def is_paused(vmi: JsonObject) -> bool:
    """Whether the guest is paused."""
    return meta.is_condition_true(vmi, "Paused")


def require_running(vmi: JsonObject, text: str = "VM is not running") -> None:
    """Raises unless the guest runs."""
    if phase(vmi) != "Running":
        raise instance_conflict(vmi, text)


def check_pause(vmi: JsonObject) -> None:
    """Whether the guest can be paused."""
    require_running(vmi)
    probe = get_object(vmi, "spec").get("livenessProbe")
    if isinstance(probe, dict) and "guestAgentPing" not in probe:
        text = "Pausing VMIs with a non-GuestAgentPing LivenessProbe is not supported"
        raise errors.forbidden(INSTANCE, meta.name(vmi), text)
    if is_paused(vmi):
        raise instance_conflict(vmi, "VMI is already paused")


def check_unpause(vmi: JsonObject, vm: JsonObject | None) -> None:
    """Whether the guest can go on."""
    if vm is not None and get_object(vm, "status").get("snapshotInProgress"):
        raise instance_conflict(vmi, "VM snapshot is in progress")
    require_running(vmi, "VMI is not running")
    if not is_paused(vmi):
        raise instance_conflict(vmi, "VMI is not paused")


def check_softreboot(vmi: JsonObject) -> None:
    """Whether the guest can be asked to restart."""
    require_running(vmi)
    if is_paused(vmi):
        raise instance_conflict(vmi, "VMI is paused")
    acpi = get_object(vmi, "spec", "domain", "features", "acpi")
    if acpi.get("enabled") is False and not meta.is_condition_true(vmi, "AgentConnected"):
        raise instance_conflict(vmi, "VMI neither have the agent connected nor the ACPI feature enabled")


def check_guest_agent(vmi: JsonObject) -> None:
    """Whether the guest's agent can be asked."""
    require_running(vmi, "VMI is not running")
    if not meta.is_condition_true(vmi, "AgentConnected"):
        raise instance_conflict(vmi, "VMI does not have guest agent connected")


def check_console(vmi: JsonObject) -> None:
    """Whether there is a serial console to connect to."""
    if get_object(vmi, "spec", "domain", "devices").get("autoattachSerialConsole") is False:
        raise errors.bad_request("No serial consoles are present.")
    if phase(vmi) == "Failed":
        raise instance_conflict(vmi, "VMI is in failed status")
    if phase(vmi) != "Running":
        raise errors.bad_request("VMI is not running")


def check_display(vmi: JsonObject) -> None:
    """Whether there is a display to connect to."""
    if get_object(vmi, "spec", "domain", "devices").get("autoattachGraphicsDevice") is False:
        raise errors.bad_request("No graphics devices are present.")
    if phase(vmi) != "Running":
        raise errors.bad_request("VMI is not running")


def check_usb_redirection(vmi: JsonObject) -> None:
    """Whether USB devices of clients can be attached."""
    if get_str(vmi, "spec", "architecture") == "s390x":
        raise instance_conflict(vmi, "No USB support on s390x")
    if not isinstance(get_object(vmi, "spec", "domain", "devices").get("clientPassthrough"), dict):
        raise instance_conflict(vmi, "Not configured with USB Redirection")
    if phase(vmi) != "Running":
        raise errors.bad_request("VMI is not running")


def check_vsock(vmi: JsonObject) -> None:
    """Whether the guest has a VSOCK device."""
    if get_object(vmi, "spec", "domain", "devices").get("autoattachVSOCK") is not True:
        raise errors.bad_request("VSOCK is not attached.")
    if phase(vmi) != "Running":
        raise errors.bad_request("VMI is not running")


def forward_address(vmi: JsonObject) -> str:
    """The address that ports are forwarded to."""
    if is_paused(vmi):
        raise instance_conflict(vmi, "VMI is paused")
    interfaces = get_list(vmi, "status", "interfaces")
    address = get_str(interfaces[0], "ipAddress") if interfaces else ""
    if not address:
        raise errors.bad_request("no network interfaces are present")
    return address


def check_sev(vmi: JsonObject, gate_is_on: bool) -> None:
    """Whether the guest's memory encryption can be attested."""
    if not gate_is_on:
        raise errors.bad_request("'WorkloadEncryptionSEV' feature gate is not enabled")
    sev = get_object(vmi, "spec", "domain", "launchSecurity", "sev")
    if not isinstance(sev.get("attestation"), dict):
        raise instance_conflict(vmi, "Attestation not requested for VMI")


def check_assigned(vmi: JsonObject) -> None:
    """Whether the instance has a node."""
    if phase(vmi) not in ("Scheduled", "Running"):
        raise instance_conflict(vmi, "VMI is not assigned to a node yet")


def check_changed_block_tracking(vmi: JsonObject) -> None:
    """Whether the guest's changed blocks are tracked."""
    if get_str(vmi, "status", "changedBlockTracking", "state") != "Enabled":
        raise instance_conflict(vmi, "ChangedBlockTracking is not enabled")


def internal(text: str) -> StatusError:
    """Something failed that the user cannot help."""
    details = {"causes": [{"message": text}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {text}", details)
