"""What ``virtplane install`` applies for the hostpath provisioner's operator."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api import crds, labels, ports
from virtplane.api.accounts import COMPONENT_USER
from virtplane.operators.hostpath.product import HOSTPATH, NAME, OPERATOR, Settings, made
from virtplane.operators.hostpath.rights import operator_rights
from virtplane.operators.kit.certificates import CertificateSet, CertificateSpec
from virtplane.operators.kit.webhooks import CREATE, DELETE, UPDATE, Endpoint, Webhook
from virtplane.operators.kit.workloads import probed

SERVICE = "hostpath-provisioner-operator-webhook-service"
SECRET = f"{SERVICE}-cert"
AUTHORITY = f"{OPERATOR}-ca"
CERTIFICATES = CertificateSet(
    HOSTPATH,
    authorities=(AUTHORITY,),
    certificates=(CertificateSpec(SECRET, SERVICE, AUTHORITY, service=SERVICE),),
)

_WEBHOOK = Webhook(
    f"validate-{NAME}.kubevirt.io",
    "/validate-hostpathprovisioner-kubevirt-io-v1beta1-hostpathprovisioner",
    (CREATE, UPDATE, DELETE),
    "hostpathprovisioner.kubevirt.io",
    ("v1beta1",),
    ("hostpathprovisioners",),
    timeout_seconds=30,
)


def install_objects(settings: Settings, *, require_webhook_certificate: bool = False) -> list[JsonObject]:
    """The definition, the operator's rights, its service, and in the distributed layout its Deployment."""
    compact = settings.layout == "compact"
    selector = {labels.APP: "virt-operator"} if compact else {"name": OPERATOR}
    port = {"port": 443, "targetPort": ports.HOSTPATH_WEBHOOKS, "protocol": "TCP"}
    spec = {"selector": selector, "ports": [port], "type": "ClusterIP"}
    objects = [
        crds.custom_resource_definition(crds.HOSTPATH_PROVISIONER),
        *operator_rights(settings),
        made(settings, "v1", "Service", SERVICE, namespaced=True, spec=spec),
    ]
    if not compact:
        objects.append(_deployment(settings, require_webhook_certificate=require_webhook_certificate))
    return objects


def webhook_configuration(settings: Settings, ca_bundle: str) -> JsonObject:
    """The registration of the webhook; the operator writes it, because it has the authority."""
    endpoint = Endpoint(HOSTPATH, settings.namespace, SERVICE, SECRET, ca_bundle)
    document = endpoint.validating("hostpathprovisioner.kubevirt.io", [_WEBHOOK])
    document["metadata"]["labels"] = settings.labels()
    return document


def _deployment(settings: Settings, *, require_webhook_certificate: bool) -> JsonObject:
    container: JsonObject = {
        "name": OPERATOR,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["virtplane", "run", OPERATOR],
        "args": [
            *("--namespace", "$(POD_NAMESPACE)", "--layout", settings.layout, "--image", settings.image),
            *("--kubelet-root", settings.kubelet_root),
            *(["--require-webhook-certificate"] if require_webhook_certificate else []),
        ],
        "env": [
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "MONITORING_NAMESPACE", "value": settings.monitoring_namespace},
        ],
        "ports": [
            {"name": "metrics", "containerPort": ports.HEALTH, "protocol": "TCP"},
            {"name": "webhooks", "containerPort": ports.HOSTPATH_WEBHOOKS, "protocol": "TCP"},
        ],
        "resources": {"requests": {"cpu": "10m", "memory": "150Mi"}},
    }
    probed(container, ports.HEALTH)
    own = {"name": OPERATOR}
    pod = {
        "serviceAccountName": OPERATOR,
        "securityContext": {"runAsNonRoot": True, "runAsUser": COMPONENT_USER},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "containers": [container],
    }
    document = made(settings, "apps/v1", "Deployment", OPERATOR, namespaced=True)
    document["metadata"]["labels"].update(own)
    # Not k8s-app: the selector of the DaemonSets is just that.
    template = {key: value for key, value in settings.labels().items() if key != "k8s-app"}
    document["spec"] = {
        "replicas": 1,
        "selector": {"matchLabels": own},
        "template": {"metadata": {"labels": {**template, **own}}, "spec": pod},
    }
    return document
