"""The Deployments of CDI's components, and their services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kubecore.json import JsonObject
from kubecore.objects.structs import encode
from virtplane.api import cdi_labels, labels, paths, ports
from virtplane.api import cdi_names as names
from virtplane.api.accounts import COMPONENT_USER
from virtplane.api.pod_security import restricted_container
from virtplane.operators.cdi.product import PRODUCT, Parameters, made
from virtplane.operators.cdi.verbosity import verbosity_of
from virtplane.operators.kit.workloads import Workloads, add_pull_secrets, mount_secret, place, probed

SIGNING_KEY_PATH = "/var/run/cdi/token/keys"
_SIGNERS = {
    names.UPLOAD_SERVER_SIGNER: "/var/run/certs/cdi-uploadserver-signer",
    names.UPLOAD_CLIENT_SIGNER: "/var/run/certs/cdi-uploadserver-client-signer",
    names.SIGNING_KEY: SIGNING_KEY_PATH,
}
_BUNDLES = {
    names.UPLOAD_SERVER_BUNDLE: "/var/run/ca-bundle/cdi-uploadserver-signer-bundle",
    names.UPLOAD_CLIENT_BUNDLE: "/var/run/ca-bundle/cdi-uploadserver-client-signer-bundle",
}
_REQUIRED_CONSTRAINTS = {"openshift.io/required-scc": "restricted-v2"}
_METRICS_PORT = 8443


@dataclass(frozen=True, slots=True)
class _Component:
    """A Deployment: its ports beside that of health and metrics, and where it finds its certificates."""

    name: str
    account: str
    replicas: int
    ports: Mapping[str, int] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    bundles: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)


def deployments(parameters: Parameters) -> list[JsonObject]:
    """The Deployments; none where the components share the operator's process."""
    if parameters.settings.is_compact:
        return []
    infra = parameters.cdi.spec.infra
    settings = parameters.settings
    image = settings.image
    found = [
        _Component(
            names.API_SERVER,
            names.API_SERVER,
            infra.api_server_replicas or 1,
            {"api": ports.CDI_API},
            {names.API_SERVER_CERTIFICATE: paths.CDI_API_CERTIFICATES},
        ),
        _Component(
            names.CONTROLLER,
            names.CONTROLLER_ACCOUNT,
            infra.deployment_replicas or 1,
            secrets=_SIGNERS,
            bundles=_BUNDLES,
            environment={
                "IMPORTER_IMAGE": settings.importer_image or image,
                "CLONER_IMAGE": settings.cloner_image or image,
                "UPLOADSERVER_IMAGE": settings.upload_server_image or image,
                "UPLOADPROXY_SERVICE": names.UPLOAD_PROXY,
                "PULL_POLICY": _pull_policy(parameters),
            },
            pod_labels={cdi_labels.PROMETHEUS: "true"},
        ),
        _Component(
            names.UPLOAD_PROXY,
            names.UPLOAD_PROXY,
            infra.upload_proxy_replicas or 1,
            {"proxy": ports.CDI_UPLOAD_PROXY},
            {
                names.UPLOAD_PROXY_CERTIFICATE: paths.CDI_UPLOAD_PROXY_CERTIFICATES,
                names.UPLOAD_CLIENT_CERTIFICATE: paths.CDI_UPLOAD_CLIENT_CERTIFICATES,
            },
        ),
    ]
    return [_deployment(parameters, component) for component in found]


def services(parameters: Parameters) -> list[JsonObject]:
    """The services of the components, and the one by which Prometheus finds metrics."""
    compact = {labels.APP: "virt-operator"}
    is_compact = parameters.settings.is_compact

    def service(name: str, component: str, target: int) -> JsonObject:
        selector = compact if is_compact else {cdi_labels.COMPONENT: component}
        port = {"port": 443, "targetPort": target, "protocol": "TCP"}
        return _service(parameters, name, selector, port)

    metrics = {"name": "metrics", "port": _METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"}
    prometheus = _service(parameters, names.METRICS_SERVICE, {cdi_labels.PROMETHEUS: "true"}, metrics)
    prometheus["metadata"]["labels"][cdi_labels.PROMETHEUS] = "true"
    return [
        service(names.API_SERVICE, names.API_SERVER, ports.CDI_API),
        service(names.UPLOAD_PROXY, names.UPLOAD_PROXY, ports.CDI_UPLOAD_PROXY),
        prometheus,
    ]


def _service(parameters: Parameters, name: str, selector: Mapping[str, str], port: JsonObject) -> JsonObject:
    spec = {"selector": dict(selector), "ports": [port], "type": "ClusterIP"}
    return made(parameters, "v1", "Service", name, namespaced=True, spec=spec)


def _deployment(parameters: Parameters, component: _Component) -> JsonObject:
    pod = _pod(parameters, component)
    own = {
        **parameters.labels(component.name),
        labels.ALLOW_CLUSTER_SERVICES: "true",
        **component.pod_labels,
    }
    document = made(parameters, "apps/v1", "Deployment", component.name, namespaced=True)
    document["metadata"]["labels"] = own
    document["spec"] = {
        "replicas": component.replicas,
        # It cannot be changed, so it has nothing that could.
        "selector": {"matchLabels": {cdi_labels.COMPONENT: component.name}},
        "template": {
            "metadata": {"labels": dict(own), "annotations": dict(_REQUIRED_CONSTRAINTS)},
            "spec": pod,
        },
    }
    return document


def _pod(parameters: Parameters, component: _Component) -> JsonObject:
    volumes: list[JsonObject] = []
    pod: JsonObject = {
        "serviceAccountName": component.account,
        "securityContext": {"runAsNonRoot": True, "runAsUser": COMPONENT_USER},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "containers": [_container(parameters, component, volumes)],
        "volumes": volumes,
    }
    if parameters.priority_class:
        pod["priorityClassName"] = parameters.priority_class
    place(pod, encode(parameters.cdi.spec.infra))
    apart = Workloads(PRODUCT, parameters.namespace).apart(component.name)
    anti = pod.setdefault("affinity", {}).setdefault("podAntiAffinity", {})
    for key, terms in apart.items():
        anti[key] = [*anti.get(key, ()), *terms]
    config = parameters.cdi.spec.config
    add_pull_secrets(pod, [encode(each) for each in config.image_pull_secrets] if config is not None else [])
    return pod


def _container(parameters: Parameters, component: _Component, volumes: list[JsonObject]) -> JsonObject:
    settings = parameters.settings
    args = ["--namespace", "$(POD_NAMESPACE)", "--layout", settings.layout, "--image", settings.image]
    verbosity = verbosity_of(component.name, parameters.cdi, settings.verbosity)
    args += ["--verbosity", str(verbosity)]
    if settings.require_webhook_certificate and component.name == names.API_SERVER:
        args.append("--require-webhook-certificate")
    container: JsonObject = {
        "name": component.name,
        "image": settings.image,
        "imagePullPolicy": _pull_policy(parameters),
        "command": ["virtplane", "run", component.name],
        "args": args,
        "env": [
            _from_field("POD_NAMESPACE", "metadata.namespace"),
            _from_field("POD_NAME", "metadata.name"),
            *({"name": name, "value": value} for name, value in component.environment.items()),
        ],
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"}
            for name, port in {"metrics": ports.HEALTH, **component.ports}.items()
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "150Mi"}},
        "securityContext": restricted_container(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [],
    }
    probed(container, ports.HEALTH)
    for secret, path in component.secrets.items():
        mount_secret(container, volumes, secret, path)
    for bundle, path in component.bundles.items():
        volumes.append({"name": bundle, "configMap": {"name": bundle, "optional": True}})
        container["volumeMounts"].append({"name": bundle, "mountPath": path, "readOnly": True})
    return container


def _from_field(name: str, path: str) -> JsonObject:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _pull_policy(parameters: Parameters) -> str:
    return parameters.cdi.spec.image_pull_policy or "IfNotPresent"
