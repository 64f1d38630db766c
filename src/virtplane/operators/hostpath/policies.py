"""The ValidatingAdmissionPolicy of volumes: what the driver's account may not do although it has the right.

Every node holds that account's token. Without this, one node that was broken into could make a hostPath
volume for a claim of its choice, and so reach the files of all others, or give a tenant another's volume.
"""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.operators.hostpath.product import CSI_ACCOUNT, CSI_NAME, DRIVER, Settings, made

_GROUP = "admissionregistration.k8s.io/v1"

_VALIDATIONS: tuple[tuple[str, str], ...] = (
    (
        f"has(variables.volume.spec.csi) && variables.volume.spec.csi.driver == '{DRIVER}'",
        f"this user makes, changes and deletes volumes of {DRIVER} only",
    ),
    (
        "request.operation != 'UPDATE' || (has(object.spec.claimRef) && has(oldObject.spec.claimRef)"
        " ? object.spec.claimRef.uid == oldObject.spec.claimRef.uid"
        " && object.spec.claimRef.namespace == oldObject.spec.claimRef.namespace"
        " && object.spec.claimRef.name == oldObject.spec.claimRef.name"
        " : has(object.spec.claimRef) == has(oldObject.spec.claimRef))",
        "this user cannot change the claim of a volume",
    ),
)


def volume_restriction(settings: Settings) -> list[JsonObject]:
    """The policy and its binding."""
    user = f"system:serviceaccount:{settings.namespace}:{CSI_ACCOUNT}"
    volumes = {
        "apiGroups": [""],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["persistentvolumes"],
        "scope": "*",
    }
    policy = made(
        settings,
        _GROUP,
        "ValidatingAdmissionPolicy",
        CSI_NAME,
        spec={
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [volumes]},
            "matchConditions": [
                {"name": "driver-only", "expression": f'request.userInfo.username == "{user}"'}
            ],
            "variables": [
                {"name": "volume", "expression": "request.operation == 'DELETE' ? oldObject : object"}
            ],
            "validations": [
                {"expression": expression, "message": message, "reason": "Forbidden"}
                for expression, message in _VALIDATIONS
            ],
        },
    )
    binding = made(
        settings,
        _GROUP,
        "ValidatingAdmissionPolicyBinding",
        CSI_NAME,
        spec={"policyName": CSI_NAME, "validationActions": ["Deny"]},
    )
    return [policy, binding]
