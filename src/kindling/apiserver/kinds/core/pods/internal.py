"""Pods as some refusals quote them: the API server's internal form of a pod's spec and of its parts."""

from __future__ import annotations

from typing import Any

from kindling.apiserver.kinds.machinery.internal import Inline, internal_form
from kubecore.json import JsonObject, get_object

_REFERENCE = {"Name": "", "Optional": None}
_KEY = {"Name": "", "Key": "", "Optional": None}
_FIELD = {"APIVersion": "", "FieldPath": ""}
_RESOURCE_FIELD = {"ContainerName": "", "Resource": "", "Divisor": "0"}
_ENV = {
    "Name": "",
    "Value": "",
    "ValueFrom": {
        "FieldRef": _FIELD,
        "ResourceFieldRef": _RESOURCE_FIELD,
        "ConfigMapKeyRef": _KEY,
        "SecretKeyRef": _KEY,
        "FileKeyRef": {"VolumeName": "", "Path": "", "Key": "", "Optional": None},
    },
}
_RESOURCES = {"Limits": None, "Requests": None, "Claims": [{"Name": "", "Request": ""}]}
_EXEC = {"Command": None}
_HTTP = {"Path": "", "Port": 0, "Host": "", "Scheme": "", "HTTPHeaders": [{"Name": "", "Value": ""}]}
_SOCKET = {"Port": 0, "Host": ""}
_PROBE = {
    "Exec": _EXEC,
    "HTTPGet": _HTTP,
    "TCPSocket": _SOCKET,
    "GRPC": {"Port": 0, "Service": None},
    "InitialDelaySeconds": 0,
    "TimeoutSeconds": 0,
    "PeriodSeconds": 0,
    "SuccessThreshold": 0,
    "FailureThreshold": 0,
    "TerminationGracePeriodSeconds": None,
}
_HOOK = {"Exec": _EXEC, "HTTPGet": _HTTP, "TCPSocket": _SOCKET, "Sleep": {"Seconds": 0}}
_SELINUX = {"User": "", "Role": "", "Type": "", "Level": ""}
_WINDOWS = dict.fromkeys(("GMSACredentialSpecName", "GMSACredentialSpec", "RunAsUserName", "HostProcess"))
_PROFILE = {"Type": "", "LocalhostProfile": None}
_SECURITY = {
    "Capabilities": {"Add": None, "Drop": None},
    "Privileged": None,
    "SELinuxOptions": _SELINUX,
    "WindowsOptions": _WINDOWS,
    "RunAsUser": None,
    "RunAsGroup": None,
    "RunAsNonRoot": None,
    "ReadOnlyRootFilesystem": None,
    "AllowPrivilegeEscalation": None,
    "ProcMount": None,
    "SeccompProfile": _PROFILE,
    "AppArmorProfile": _PROFILE,
}
_MOUNT = {
    "Name": "",
    "ReadOnly": False,
    "RecursiveReadOnly": None,
    "MountPath": "",
    "SubPath": "",
    "MountPropagation": None,
    "SubPathExpr": "",
}
_CONTAINER = {
    "Name": "",
    "Image": "",
    "Command": None,
    "Args": None,
    "WorkingDir": "",
    "Ports": [{"Name": "", "HostPort": 0, "ContainerPort": 0, "Protocol": "", "HostIP": ""}],
    "EnvFrom": [{"Prefix": "", "ConfigMapRef": _REFERENCE, "SecretRef": _REFERENCE}],
    "Env": [_ENV],
    "Resources": Inline(_RESOURCES),
    "ResizePolicy": [{"ResourceName": "", "RestartPolicy": ""}],
    "RestartPolicy": None,
    "RestartPolicyRules": [{"Action": "", "ExitCodes": {"Operator": "", "Values": None}}],
    "VolumeMounts": [_MOUNT],
    "VolumeDevices": [{"Name": "", "DevicePath": ""}],
    "LivenessProbe": _PROBE,
    "ReadinessProbe": _PROBE,
    "StartupProbe": _PROBE,
    "Lifecycle": {"PostStart": _HOOK, "PreStop": _HOOK, "StopSignal": None},
    "TerminationMessagePath": "",
    "TerminationMessagePolicy": "",
    "ImagePullPolicy": "",
    "SecurityContext": _SECURITY,
    "Stdin": False,
    "StdinOnce": False,
    "TTY": False,
}
_ITEMS = [{"Key": "", "Path": "", "Mode": None}]
_DOWNWARD = [{"Path": "", "FieldRef": _FIELD, "ResourceFieldRef": _RESOURCE_FIELD, "Mode": None}]
_NAMED_ITEMS = {"Name": "", "Items": _ITEMS, "Optional": None}
_PROJECTED = {
    "Secret": _NAMED_ITEMS,
    "DownwardAPI": {"Items": _DOWNWARD},
    "ConfigMap": _NAMED_ITEMS,
    "ServiceAccountToken": {"Audience": "", "ExpirationSeconds": 0, "Path": ""},
    "ClusterTrustBundle": {
        "Name": None,
        "SignerName": None,
        "LabelSelector": None,
        "Optional": None,
        "Path": "",
    },
    "PodCertificate": None,
}
_VOLUME = {
    "Name": "",
    "HostPath": {"Path": "", "Type": None},
    "EmptyDir": {"Medium": "", "SizeLimit": None},
    "GCEPersistentDisk": {"PDName": "", "FSType": "", "Partition": 0, "ReadOnly": False},
    "AWSElasticBlockStore": {"VolumeID": "", "FSType": "", "Partition": 0, "ReadOnly": False},
    "GitRepo": {"Repository": "", "Revision": "", "Directory": ""},
    "Secret": {"SecretName": "", "Items": _ITEMS, "DefaultMode": None, "Optional": None},
    "NFS": {"Server": "", "Path": "", "ReadOnly": False},
    **dict.fromkeys(("ISCSI", "Glusterfs")),
    "PersistentVolumeClaim": {"ClaimName": "", "ReadOnly": False},
    **dict.fromkeys(("RBD", "Quobyte", "FlexVolume", "Cinder", "CephFS", "Flocker")),
    "DownwardAPI": {"Items": _DOWNWARD, "DefaultMode": None},
    **dict.fromkeys(("FC", "AzureFile")),
    "ConfigMap": {"Name": "", "Items": _ITEMS, "DefaultMode": None, "Optional": None},
    **dict.fromkeys(("VsphereVolume", "AzureDisk", "PhotonPersistentDisk")),
    "Projected": {"Sources": [_PROJECTED], "DefaultMode": None},
    **dict.fromkeys(("PortworxVolume", "ScaleIO", "StorageOS")),
    "CSI": {
        "Driver": "",
        "ReadOnly": None,
        "FSType": None,
        "VolumeAttributes": None,
        "NodePublishSecretRef": {"Name": ""},
    },
    "Ephemeral": None,
    "Image": {"Reference": "", "PullPolicy": ""},
}
"""Sources without a shape are rare, and shown as they are published."""
_REQUIREMENTS = [{"Key": "", "Operator": "", "Values": None}]
_NODE_TERM = {"MatchExpressions": _REQUIREMENTS, "MatchFields": _REQUIREMENTS}
_POD_TERM = {
    "LabelSelector": None,
    "Namespaces": None,
    "TopologyKey": "",
    "NamespaceSelector": None,
    "MatchLabelKeys": None,
    "MismatchLabelKeys": None,
}
_REQUIRED, _PREFERRED = (
    "RequiredDuringSchedulingIgnoredDuringExecution",
    "PreferredDuringSchedulingIgnoredDuringExecution",
)
_POD_AFFINITY = {
    _REQUIRED: [_POD_TERM],
    _PREFERRED: [{"Weight": 0, "PodAffinityTerm": Inline(_POD_TERM)}],
}
_AFFINITY = {
    "NodeAffinity": {
        _REQUIRED: {"NodeSelectorTerms": [_NODE_TERM]},
        _PREFERRED: [{"Weight": 0, "Preference": Inline(_NODE_TERM)}],
    },
    "PodAffinity": _POD_AFFINITY,
    "PodAntiAffinity": _POD_AFFINITY,
}
_OF_THE_HOST = {"HostNetwork": False, "HostPID": False, "HostIPC": False}
_OF_THE_POD = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
"""Fields that the internal form has in the security context."""
_POD_SECURITY = {
    **_OF_THE_HOST,
    "ShareProcessNamespace": None,
    "HostUsers": None,
    "SELinuxOptions": _SELINUX,
    "WindowsOptions": _WINDOWS,
    **dict.fromkeys(("RunAsUser", "RunAsGroup", "RunAsNonRoot", "SupplementalGroups")),
    **dict.fromkeys(("SupplementalGroupsPolicy", "FSGroup", "FSGroupChangePolicy")),
    "Sysctls": [{"Name": "", "Value": ""}],
    "SeccompProfile": _PROFILE,
    "AppArmorProfile": _PROFILE,
    "SELinuxChangePolicy": None,
}
_SPREAD = {
    "MaxSkew": 0,
    "TopologyKey": "",
    "WhenUnsatisfiable": "",
    **dict.fromkeys(("LabelSelector", "MinDomains", "NodeAffinityPolicy", "NodeTaintsPolicy")),
    "MatchLabelKeys": None,
}
_POD = {
    "Volumes": [_VOLUME],
    "InitContainers": [_CONTAINER],
    "Containers": [_CONTAINER],
    "EphemeralContainers": [_CONTAINER | {"TargetContainerName": ""}],
    "RestartPolicy": "",
    "TerminationGracePeriodSeconds": None,
    "ActiveDeadlineSeconds": None,
    "DNSPolicy": "",
    "NodeSelector": None,
    "ServiceAccountName": "",
    "AutomountServiceAccountToken": None,
    "NodeName": "",
    "SecurityContext": _POD_SECURITY,
    "ImagePullSecrets": [{"Name": ""}],
    "Hostname": "",
    "Subdomain": "",
    "SetHostnameAsFQDN": None,
    "Affinity": _AFFINITY,
    "SchedulerName": "",
    "Tolerations": [{"Key": "", "Operator": "", "Value": "", "Effect": "", "TolerationSeconds": None}],
    "HostAliases": [{"IP": "", "Hostnames": None}],
    "PriorityClassName": "",
    "Priority": None,
    "PreemptionPolicy": None,
    "DNSConfig": {"Nameservers": None, "Searches": None, "Options": [{"Name": "", "Value": None}]},
    "ReadinessGates": [{"ConditionType": ""}],
    "RuntimeClassName": None,
    "Overhead": None,
    "EnableServiceLinks": None,
    "TopologySpreadConstraints": [_SPREAD],
    "OS": {"Name": ""},
    "SchedulingGates": [{"Name": ""}],
    "ResourceClaims": [{"Name": "", "ResourceClaimName": None, "ResourceClaimTemplateName": None}],
    "Resources": _RESOURCES,
    "HostnameOverride": None,
    "SchedulingGroup": None,
}


def internal_pod_spec(spec: JsonObject) -> Any:
    """The spec of a pod or of a template."""
    moved = {field: spec[field] for field in _OF_THE_POD if field in spec}
    security = {**get_object(spec, "securityContext"), **moved}
    return internal_form({**spec, "securityContext": security}, _POD)


def internal_security_context(context: JsonObject) -> Any:
    """The security context of a container."""
    return internal_form(context, _SECURITY)
