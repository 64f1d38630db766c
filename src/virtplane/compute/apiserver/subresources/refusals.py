"""Why a subresource of a VM or instance refuses: pure checks that raise the API's errors."""

from __future__ import annotations

from kubecore import errors
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.objects.structs import Struct, UnfitDocument, decode
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.vm_status import VirtualMachineStatus
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance

MACHINE = "virtualmachine.kubevirt.io"
INSTANCE = "virtualmachineinstance.kubevirt.io"
_FINAL = ("Succeeded", "Failed")


def readable(struct: type[Struct], document: JsonObject) -> Struct:
    """What the API has given, as a struct. Raises StatusError (500) that names the field which is unfit."""
    try:
        return decode(struct, document)
    except UnfitDocument as error:
        raise internal(f"it has to be corrected first: {error}") from error


def instance_of(document: JsonObject) -> VirtualMachineInstance:
    """An instance that the API has given. Raises StatusError."""
    return readable(VirtualMachineInstance, document)


def machine_conflict(name: str, text: str) -> StatusError:
    """A VM is not in the state that the request needs."""
    return errors.conflict(MACHINE, name, text)


def instance_conflict(vmi: VirtualMachineInstance, text: str) -> StatusError:
    """An instance is not in the state that the request needs."""
    return errors.conflict(INSTANCE, vmi.metadata.name, text)


def phase(vmi: VirtualMachineInstance | None) -> str:
    """The instance's phase, empty without one."""
    return (vmi.status.phase if vmi is not None else None) or ""


def is_live(vmi: VirtualMachineInstance | None) -> bool:
    """Whether there is an instance that has not ended."""
    return vmi is not None and phase(vmi) not in _FINAL


def is_paused(vmi: VirtualMachineInstance) -> bool:
    """Whether the guest is paused."""
    return is_true(vmi.status.conditions, "Paused")


def require_running(vmi: VirtualMachineInstance, text: str = "VM is not running") -> None:
    """Raises unless the guest runs."""
    if phase(vmi) != "Running":
        raise instance_conflict(vmi, text)


def check_pause(vmi: VirtualMachineInstance) -> None:
    """Whether the guest can be paused."""
    require_running(vmi)
    probe = vmi.spec.liveness_probe
    if probe is not None and probe.guest_agent_ping is None:
        text = "Pausing VMIs with a non-GuestAgentPing LivenessProbe is not supported"
        raise errors.forbidden(INSTANCE, vmi.metadata.name, text)
    if is_paused(vmi):
        raise instance_conflict(vmi, "VMI is already paused")


def check_unpause(vmi: VirtualMachineInstance, machine: VirtualMachineStatus | None) -> None:
    """Whether the guest can go on; `machine` is the status of its VM."""
    if machine is not None and machine.snapshot_in_progress:
        raise instance_conflict(vmi, "VM snapshot is in progress")
    require_running(vmi, "VMI is not running")
    if not is_paused(vmi):
        raise instance_conflict(vmi, "VMI is not paused")


def check_softreboot(vmi: VirtualMachineInstance) -> None:
    """Refuse unless the guest can be asked to reboot."""
    require_running(vmi)
    if is_paused(vmi):
        raise instance_conflict(vmi, "VMI is paused")
    acpi = vmi.spec.domain.features.acpi
    if acpi is not None and not acpi.is_on and not is_true(vmi.status.conditions, "AgentConnected"):
        raise instance_conflict(vmi, "VMI neither have the agent connected nor the ACPI feature enabled")


def check_guest_agent(vmi: VirtualMachineInstance) -> None:
    """Refuse unless the guest agent is connected."""
    require_running(vmi, "VMI is not running")
    if not is_true(vmi.status.conditions, "AgentConnected"):
        raise instance_conflict(vmi, "VMI does not have guest agent connected")


def check_console(vmi: VirtualMachineInstance) -> None:
    """Whether there is a serial console to connect to."""
    if vmi.spec.domain.devices.autoattach_serial_console is False:
        raise errors.bad_request("No serial consoles are present.")
    if phase(vmi) == "Failed":
        raise instance_conflict(vmi, "VMI is in failed status")
    if phase(vmi) != "Running":
        raise errors.bad_request("VMI is not running")


def check_display(vmi: VirtualMachineInstance) -> None:
    """Whether there is a display to connect to."""
    if vmi.spec.domain.devices.autoattach_graphics_device is False:
        raise errors.bad_request("No graphics devices are present.")
    if phase(vmi) != "Running":
        raise errors.bad_request("VMI is not running")


def check_usb_redirection(vmi: VirtualMachineInstance) -> None:
    """Whether USB devices of clients can be attached."""
    if vmi.spec.architecture == "s390x":
        raise instance_conflict(vmi, "No USB support on s390x")
    if vmi.spec.domain.devices.client_passthrough is None:
        raise instance_conflict(vmi, "Not configured with USB Redirection")
    if phase(vmi) != "Running":
        raise errors.bad_request("VMI is not running")


def check_vsock(vmi: VirtualMachineInstance) -> None:
    """Whether the guest has a VSOCK device."""
    if vmi.spec.domain.devices.autoattach_vsock is not True:
        raise errors.bad_request("VSOCK is not attached.")
    if phase(vmi) != "Running":
        raise errors.bad_request("VMI is not running")


def forward_address(vmi: VirtualMachineInstance) -> str:
    """The address that ports are forwarded to."""
    if is_paused(vmi):
        raise instance_conflict(vmi, "VMI is paused")
    interfaces = vmi.status.interfaces
    address = interfaces[0].ip_address if interfaces else None
    if not address:
        raise errors.bad_request("no network interfaces are present")
    return address


def check_sev(vmi: VirtualMachineInstance, gate_is_on: bool) -> None:
    """Whether the guest's memory encryption can be attested."""
    if not gate_is_on:
        raise errors.bad_request("'WorkloadEncryptionSEV' feature gate is not enabled")
    security = vmi.spec.domain.launch_security
    if security is None or security.sev is None or security.sev.attestation is None:
        raise instance_conflict(vmi, "Attestation not requested for VMI")


def check_assigned(vmi: VirtualMachineInstance) -> None:
    """Whether the instance has a node."""
    if phase(vmi) not in ("Scheduled", "Running"):
        raise instance_conflict(vmi, "VMI is not assigned to a node yet")


def check_changed_block_tracking(vmi: VirtualMachineInstance) -> None:
    """Whether the guest's changed blocks are tracked."""
    tracking = vmi.status.changed_block_tracking
    if tracking is None or tracking.state != "Enabled":
        raise instance_conflict(vmi, "ChangedBlockTracking is not enabled")


def internal(text: str) -> StatusError:
    """Something failed that the user cannot help."""
    details = {"causes": [{"message": text}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {text}", details)
