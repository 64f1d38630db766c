"""Labels and annotations of the launcher pod."""

from __future__ import annotations

import hashlib
import json

from virtplane.api import labels
from virtplane.compute.launcherpod import network, reservations, resources
from virtplane.compute.launcherpod.inputs import PROGRAMS, RenderInputs, label_sized

CREATED_BY_LABEL = labels.CREATED_BY
APP_LABEL = "kubevirt.io"
LAUNCHER = "virt-launcher"
DOMAIN_ANNOTATION = labels.DOMAIN
OBSERVED_ANNOTATIONS = (labels.LATEST_API_VERSION, labels.STORAGE_API_VERSION)


_LAUNCHER_PREFIX_LIMIT = 58
"""Names end in five characters, as generated ones do, and are no longer than 63."""
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Those of generated names."""
_SUFFIX_LENGTH = 5


def launcher_prefix(instance: str) -> str:
    """The prefix of the names of an instance's launchers."""
    return f"virt-launcher-{instance}-"


def unique_name(prefix: str, purpose: str) -> str:
    """The deterministic name of the object created for `purpose`; it looks like a generated name.

    A controller that creates the object twice gets a conflict, even if its cache is stale (docs/decisions
    015). `purpose` contains the uid of the object's owner, so that names are never reused.
    """
    number = int.from_bytes(hashlib.sha256(purpose.encode()).digest())
    letters = []
    for _ in range(_SUFFIX_LENGTH):
        number, position = divmod(number, len(_SUFFIX_LETTERS))
        letters.append(_SUFFIX_LETTERS[position])
    return prefix[:_LAUNCHER_PREFIX_LIMIT] + "".join(letters)


def pod_labels(inputs: RenderInputs) -> dict[str, str]:
    """The labels of the instance, and those that identify its launcher."""
    result: dict[str, str] = dict(inputs.vmi.metadata.labels)
    result[APP_LABEL] = LAUNCHER
    result[CREATED_BY_LABEL] = inputs.uid
    result[labels.VM_NAME] = inputs.hostname
    result[labels.VMI_ID] = label_sized(inputs.name)
    result |= reservations.pod_labels(inputs)
    inject = inputs.annotations.get(labels.ISTIO_INJECT)
    if inject is not None:
        result[labels.ISTIO_INJECT] = inject
    return result


def pod_annotations(inputs: RenderInputs) -> dict[str, str]:
    """The annotations of the instance, and those for virt-handler, backup tools and the descheduler."""
    result = {
        key: value
        for key, value in inputs.annotations.items()
        if not key.startswith("kubectl.kubernetes.io") and key not in OBSERVED_ANNOTATIONS
    }
    result[DOMAIN_ANNOTATION] = inputs.name
    result["kubectl.kubernetes.io/default-container"] = "compute"
    result["kubevirt.io/migrationTransportUnix"] = "true"
    result["descheduler.alpha.kubernetes.io/request-evict-only"] = ""
    result[labels.MEMORY_OVERHEAD_BYTES] = str(resources.memory_overhead(inputs))
    parity = resources.PARITY_ANNOTATION
    if parity in inputs.settings.annotations and inputs.settings.gate("AlignCPUs"):
        result.setdefault(parity, inputs.settings.annotations[parity])
    result.update(network.pod_annotations(inputs))
    if not _skips_backup_hooks(inputs):
        result.update(_backup_hooks(inputs))
    return result


def followed_annotations(inputs: RenderInputs) -> dict[str, str | None]:
    """The annotations in which a pod follows its instance while it runs; None for those to be absent."""
    told = (labels.DESCHEDULER_EVICT, labels.DESCHEDULER_SPARE, labels.SKIP_BACKUP_HOOKS)
    result: dict[str, str | None] = {name: inputs.annotations.get(name) for name in told}
    hooks = _backup_hooks(inputs)
    return result | (dict.fromkeys(hooks) if _skips_backup_hooks(inputs) else hooks)


def _skips_backup_hooks(inputs: RenderInputs) -> bool:
    """Whether the user or the administrator disabled freezing the guest for backups."""
    for owner in (inputs.annotations, inputs.settings.annotations):
        if owner.get(labels.SKIP_BACKUP_HOOKS) == "true":
            return True
    return False


def _backup_hooks(inputs: RenderInputs) -> dict[str, str]:
    def command(action: str) -> str:
        program = f"{PROGRAMS}/virt-freezer"
        return json.dumps([program, action, "--name", inputs.name, "--namespace", inputs.namespace_name])

    return {
        "pre.hook.backup.velero.io/container": "compute",
        "pre.hook.backup.velero.io/command": command("--freeze"),
        "pre.hook.backup.velero.io/timeout": "60s",
        "post.hook.backup.velero.io/container": "compute",
        "post.hook.backup.velero.io/command": command("--unfreeze"),
    }
