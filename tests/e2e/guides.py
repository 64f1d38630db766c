"""The machines that users' guides show, adapted to a test machine, and what they need around them.

A machine stays as it is printed, but for this:

- what a fragment leaves out is added (`tests/support/guides.py`);
- all are in the default namespace;
- images of other systems are the demo guest's; so are disks from registries, web sites and golden images;
- guests without an instance type have 128Mi, and disks `_DISK`;
- guests are not waited for when they end.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import trustme
from tests.e2e.clusters import CORE, GUEST_IMAGE, NAMESPACE, Cluster, manifest
from tests.e2e.failures import Document
from tests.e2e.programs.manifests import document
from tests.e2e.support import wait_for
from tests.support import guides
from tests.support.shellpods import IMAGE as BUSYBOX

_CDI_VERSION = "cdi.kubevirt.io/v1beta1"
_CDI = f"/apis/{_CDI_VERSION}/namespaces"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
DEFINITIONS = f"/apis/k8s.cni.cncf.io/v1/namespaces/{NAMESPACE}/network-attachment-definitions"
_DISK = "256Mi"
_FROM_NODE = {"url": f"docker://{GUEST_IMAGE}", "pullMethod": "node"}
_GOLDEN = ("openshift-virtualization-os-images", "rhel9")
_CLONED = ("source-namespace", "my-favorite-vm-disk")
OVERLAY = "l2-network"
"""A network of OVN-Kubernetes."""
_NETWORKS = ("pxe-net-conf", "bond1-br1")
_INSTANCETYPE = "VirtualMachineInstancetype"
_WEB = "images"
_USER, _PASSWORD = "reader", "secret-word"


def adapted() -> dict[str, Document]:
    """All machines and instances, by their names."""
    found = guides.machines()
    for name, machine in found.items():
        machine["metadata"]["namespace"] = NAMESPACE
        _adapt(machine, name)
    for each in guides.documents(_INSTANCETYPE):
        name = each["metadata"]["name"]
        found[name] = _of_instancetype(name)
    return found


def _of_instancetype(name: str) -> Document:
    """A machine of an instance type of its namespace; it has the same name."""
    machine = manifest(name, strategy="Halted", grace=0)
    domain = machine["spec"]["template"]["spec"]["domain"]
    del domain["memory"], domain["resources"]
    machine["spec"]["instancetype"] = {"kind": _INSTANCETYPE, "name": name}
    return machine


def _adapt(machine: Document, name: str) -> None:
    outer, spec = machine["spec"], guides.instance_spec(machine)
    spec["terminationGracePeriodSeconds"] = 0
    for memory in (spec["domain"].get("memory", {}), spec["domain"].get("resources", {}).get("requests", {})):
        memory |= {key: "128Mi" for key in ("guest", "memory") if key in memory}
    for volume in spec["volumes"]:
        if "containerDisk" in volume:
            volume["containerDisk"] = {"image": GUEST_IMAGE, "imagePullPolicy": "IfNotPresent"}
    for template in outer.get("dataVolumeTemplates", ()):
        _adapt_disk(template["spec"])
        # Two machines have a disk each.
        former, own = template["metadata"]["name"], f"{name}-disk"
        template["metadata"]["name"] = own
        for volume in spec["volumes"]:
            if volume.get("dataVolume") == {"name": former}:
                volume["dataVolume"]["name"] = own


def _adapt_disk(spec: Document) -> None:
    resources = spec.get("storage", {}).get("resources", {})
    if "requests" in resources:
        resources["requests"]["storage"] = _DISK
    source = spec.get("source", {})
    if "registry" in source:
        source["registry"] |= _FROM_NODE
    if "http" in source:
        source["http"]["url"] = f"http://{_WEB}.{NAMESPACE}.svc/disk/guest.qcow2"


@contextmanager
def surroundings(cluster: Cluster) -> Iterator[None]:
    """What the machines need: a storage class, disks to be cloned, secrets, networks, a web site."""
    made: list[str] = []
    try:
        for collection, wanted in _objects(cluster):
            cluster.request("POST", collection, wanted)
            made.append(f"{collection}/{wanted['metadata']['name']}")
        for namespace, name in (_GOLDEN, _CLONED):
            path = f"{_CDI}/{namespace}/datavolumes/{name}"
            wait_for(f"{name} is filled", partial(_is_filled, cluster, path), 90)
        yield
    finally:
        for path in reversed(made):
            cluster.request("DELETE", path)


def _is_filled(cluster: Cluster, path: str) -> bool:
    return bool(cluster.request("GET", path).get("status", {}).get("phase") == "Succeeded")


def _objects(cluster: Cluster) -> Iterator[tuple[str, Document]]:
    """Collections, and what is created in them."""
    core = f"{CORE}/namespaces/{NAMESPACE}"
    yield "/apis/storage.k8s.io/v1/storageclasses", _storage_class(cluster)
    for namespace, name in (_GOLDEN, _CLONED):
        yield f"{CORE}/namespaces", document("Namespace", namespace)
        storage = {"resources": {"requests": {"storage": _DISK}}}
        filled = {"source": {"registry": _FROM_NODE}, "storage": storage}
        yield f"{_CDI}/{namespace}/datavolumes", document("DataVolume", name, _CDI_VERSION, spec=filled)
    yield from _clone_rights()
    namespace, name = _GOLDEN
    golden = {"source": {"pvc": {"namespace": namespace, "name": name}}}
    yield f"{_CDI}/{namespace}/datasources", document("DataSource", name, _CDI_VERSION, spec=golden)
    for secret in guides.documents("Secret"):
        secret["metadata"]["namespace"] = NAMESPACE
        if "accessKeyId" in secret["data"]:
            secret["data"] = {"accessKeyId": _encoded(_USER), "secretKey": _encoded(_PASSWORD)}
        yield f"{core}/secrets", secret
    for service in guides.documents("Service"):
        service["metadata"]["namespace"] = NAMESPACE
        yield f"{core}/services", service
    authority = {"ca.pem": trustme.CA().cert_pem.bytes().decode()}
    yield f"{core}/configmaps", document("ConfigMap", "tls-certs", data=authority)
    yield f"{core}/configmaps", document("ConfigMap", _WEB, data={"users": f"/:{_USER}:{_PASSWORD}\n"})
    yield f"{core}/pods", _web_site()
    address = {"selector": {"app": _WEB}, "ports": [{"port": 80}]}
    yield f"{core}/services", document("Service", _WEB, spec=address)
    for instancetype in guides.documents(_INSTANCETYPE):
        namespaced = f"/apis/{instancetype['apiVersion']}/namespaces/{NAMESPACE}"
        yield f"{namespaced}/virtualmachineinstancetypes", instancetype
    for printed in guides.documents("NetworkAttachmentDefinition"):
        if printed["metadata"]["name"] == OVERLAY:
            printed["metadata"]["namespace"] = NAMESPACE
            config = json.loads(printed["spec"]["config"])
            config["netAttachDefName"] = f"{NAMESPACE}/{OVERLAY}"
            printed["spec"]["config"] = json.dumps(config)
            yield DEFINITIONS, printed
    for network in _NETWORKS:
        yield DEFINITIONS, network_of(network, {"type": "bridge", "bridge": f"br-{network[:8]}", "ipam": {}})


def _clone_rights() -> Iterator[tuple[str, Document]]:
    """Machines may clone from both namespaces: the guide's role, and its binding in each."""
    (role,) = guides.documents("ClusterRole")
    yield f"{_RBAC}/clusterroles", role
    for namespace, _ in (_GOLDEN, _CLONED):
        (binding,) = guides.documents("RoleBinding")
        binding["metadata"]["namespace"] = namespace
        binding["subjects"][0]["namespace"] = NAMESPACE
        yield f"{_RBAC}/namespaces/{namespace}/rolebindings", binding


def _storage_class(cluster: Cluster) -> Document:
    """The guide's, in the storage pool of the cluster."""
    (wanted,) = (
        each for each in guides.documents("StorageClass") if each["metadata"]["name"] == "hostpath-csi"
    )
    own = cluster.request("GET", "/apis/storage.k8s.io/v1/storageclasses/hostpath")
    return {**wanted, "parameters": own["parameters"]}


def network_of(name: str, config: Document) -> Document:
    """A network of pods."""
    text = json.dumps({"cniVersion": "0.3.1", "name": name, **config})
    return document("NetworkAttachmentDefinition", name, "k8s.cni.cncf.io/v1", spec={"config": text})


def _web_site() -> Document:
    """A pod that has the demo guest's disk for those with the password."""
    only = {
        "name": "httpd",
        "image": BUSYBOX,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/busybox", "httpd", "-f", "-p", "80", "-h", "/www", "-c", "/etc/httpd/users"],
        "volumeMounts": [
            {"name": "disk", "mountPath": "/www", "readOnly": True},
            {"name": "users", "mountPath": "/etc/httpd"},
        ],
    }
    disk = {"name": "disk", "image": {"reference": GUEST_IMAGE, "pullPolicy": "IfNotPresent"}}
    users = {"name": "users", "configMap": {"name": _WEB}}
    spec = {"containers": [only], "volumes": [disk, users], "terminationGracePeriodSeconds": 0}
    pod = document("Pod", _WEB, spec=spec)
    pod["metadata"]["labels"] = {"app": _WEB}
    return pod


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
