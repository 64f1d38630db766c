"""The default roles and bindings, as data: one line per rule, ``verbs groups resources [names]``.

Words are separated by commas; ``-`` stands for the core group or for nothing. Facts follow the published
defaults of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubecore.json import JsonObject

from .controller_roles import CONTROLLER_MANAGER, CONTROLLERS, EVERY_CONTROLLER, PREFIX

_GROUP = "rbac.authorization.k8s.io"
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_ANNOTATIONS = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
_READ = "get,list,watch"
_WRITE = "create,delete,deletecollection,patch,update"

_ADMIN = f"""
create authorization.k8s.io localsubjectaccessreviews
create,delete,deletecollection,get,list,patch,update,watch {_GROUP} rolebindings,roles
"""

_EDIT = f"""
get,list,watch - pods/attach,pods/exec,pods/portforward,pods/proxy,secrets,services/proxy
impersonate - serviceaccounts
{_WRITE} - pods,pods/attach,pods/exec,pods/portforward,pods/proxy
create - pods/eviction
{_WRITE} - configmaps,events,persistentvolumeclaims,replicationcontrollers,replicationcontrollers/scale,\
secrets,serviceaccounts,services,services/proxy
create - serviceaccounts/token
{_WRITE} apps daemonsets,deployments,deployments/rollback,deployments/scale,replicasets,replicasets/scale,\
statefulsets,statefulsets/scale
{_WRITE} autoscaling horizontalpodautoscalers
{_WRITE} batch cronjobs,jobs
{_WRITE} policy poddisruptionbudgets
{_WRITE} networking.k8s.io ingresses,networkpolicies
create,delete,deletecollection,get,list,patch,update,watch coordination.k8s.io leases
"""

_VIEW = f"""
{_READ} - configmaps,endpoints,persistentvolumeclaims,persistentvolumeclaims/status,pods,\
replicationcontrollers,replicationcontrollers/scale,serviceaccounts,services,services/status
{_READ} - bindings,events,limitranges,namespaces/status,pods/log,pods/status,replicationcontrollers/status,\
resourcequotas,resourcequotas/status
{_READ} - namespaces
{_READ} discovery.k8s.io endpointslices
{_READ} apps controllerrevisions,daemonsets,daemonsets/status,deployments,deployments/scale,\
deployments/status,replicasets,replicasets/scale,replicasets/status,statefulsets,statefulsets/scale,\
statefulsets/status
{_READ} autoscaling horizontalpodautoscalers,horizontalpodautoscalers/status
{_READ} batch cronjobs,cronjobs/status,jobs,jobs/status
{_READ} policy poddisruptionbudgets,poddisruptionbudgets/status
{_READ} networking.k8s.io ingresses,ingresses/status,networkpolicies
"""

_NODE = f"""
create authentication.k8s.io tokenreviews
create authorization.k8s.io localsubjectaccessreviews,subjectaccessreviews
{_READ} - services
create,get,list,watch - nodes
patch,update - nodes/status
patch,update - nodes
create,patch,update - events
{_READ} - pods
create,delete - pods
patch,update - pods/status
create - pods/eviction
{_READ} - configmaps,secrets
get - persistentvolumeclaims,persistentvolumes
get - endpoints
create,get,list,watch certificates.k8s.io certificatesigningrequests
create,delete,get,patch,update coordination.k8s.io leases
get storage.k8s.io volumeattachments
create - serviceaccounts/token
get,patch,update - persistentvolumeclaims/status
{_READ} storage.k8s.io csidrivers
create,delete,get,patch,update storage.k8s.io csinodes
{_READ} node.k8s.io runtimeclasses
"""

_SCHEDULER = f"""
create,patch,update -,events.k8s.io events
create coordination.k8s.io leases
get,list,update,watch coordination.k8s.io leases kube-scheduler
{_READ} - nodes
delete,get,list,watch - pods
create - bindings,pods/binding
patch,update - pods/status
{_READ} -,apps replicationcontrollers,replicasets,statefulsets
{_READ} - services,namespaces
{_READ} policy poddisruptionbudgets
get,list,patch,update,watch - persistentvolumeclaims,persistentvolumes
create authentication.k8s.io tokenreviews
create authorization.k8s.io subjectaccessreviews
{_READ} storage.k8s.io csidrivers,csinodes,csistoragecapacities,storageclasses,volumeattachments
"""

_BASIC = """
create authorization.k8s.io selfsubjectaccessreviews,selfsubjectrulesreviews
create authentication.k8s.io selfsubjectreviews
"""

_DISCOVERY_PATHS = (
    "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz",
    "/version", "/version/",
)  # fmt: skip
_PUBLIC_PATHS = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_MONITORING_PATHS = (
    "/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz", "/readyz/*",
)  # fmt: skip
_ISSUER_PATHS = (
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/",
    "/openid/v1/jwks",
    "/openid/v1/jwks/",
)

_SERVICE_PROXY = "system:kindling:service-proxy"
_METRICS = "system:kindling:metrics"
_LOCKING_CONTROLLERS = "system::leader-locking-kube-controller-manager"
_LOCKING_SCHEDULER = "system::leader-locking-kube-scheduler"
_SECONDARY_NETWORKS = "system:kindling:secondary-networks"
_CSR = "system:certificates.k8s.io:certificatesigningrequests:"
_PLAIN_ROLES = {
    "system:basic-user": _BASIC,
    "system:node": _NODE,
    "system:kube-scheduler": _SCHEDULER,
    "system:volume-scheduler": f"""
get,list,patch,update,watch - persistentvolumes
{_READ} storage.k8s.io storageclasses
get,list,patch,update,watch - persistentvolumeclaims
""",
    "system:auth-delegator": """
create authentication.k8s.io tokenreviews
create authorization.k8s.io subjectaccessreviews
""",
    "system:kubelet-api-admin": f"""
{_READ} - nodes
proxy - nodes
* - nodes/log,nodes/metrics,nodes/proxy,nodes/stats
""",
    "system:node-proxier": """
list,watch - endpoints,services
get,list,watch - nodes
create,patch,update -,events.k8s.io events
list,watch discovery.k8s.io endpointslices
list,watch networking.k8s.io servicecidrs
""",
    # Names and host ports of pods, and network policies: each node's agent enforces them with this role.
    _SERVICE_PROXY: """
list,watch - namespaces,pods
list,watch networking.k8s.io networkpolicies
""",
    _METRICS: "get - nodes/stats\nget,list - nodes,pods",
    # Nodes attach pods to secondary networks. Nobody but administrators writes definitions of them: root
    # sets up on a node what they say.
    _SECONDARY_NETWORKS: """
get k8s.cni.cncf.io ipamclaims,network-attachment-definitions
patch k8s.cni.cncf.io ipamclaims/status
""",
    "system:node-problem-detector": """
get - nodes
patch - nodes/status
create,patch,update -,events.k8s.io events
""",
    "system:persistent-volume-provisioner": f"""
create,delete,get,list,watch - persistentvolumes
get,list,update,watch - persistentvolumeclaims
{_READ} storage.k8s.io storageclasses
watch - events
create,patch,update -,events.k8s.io events
""",
    _CSR + "nodeclient": "create certificates.k8s.io certificatesigningrequests/nodeclient",
    _CSR + "selfnodeclient": "create certificates.k8s.io certificatesigningrequests/selfnodeclient",
    "system:heapster": f"""
{_READ} - events,namespaces,nodes,pods
{_READ} apps deployments
""",
}


def _words(text: str) -> list[str]:
    return ["" if word == "-" else word for word in text.split(",")]


def _rules(text: str) -> list[JsonObject]:
    rules: list[JsonObject] = []
    for line in text.strip().splitlines():
        verbs, groups, resources, *names = line.split()
        rule: JsonObject = {
            "verbs": _words(verbs),
            "apiGroups": _words(groups),
            "resources": _words(resources),
        }
        if names:
            rule["resourceNames"] = _words(names[0])
        rules.append(rule)
    return rules


def _path_rule(verbs: str, paths: Iterable[str]) -> JsonObject:
    return {"verbs": verbs.split(","), "nonResourceURLs": list(paths)}


def _metadata(name: str, namespace: str = "", labels: JsonObject | None = None) -> JsonObject:
    metadata: JsonObject = {
        "name": name,
        "labels": {**_LABELS, **(labels or {})},
        "annotations": dict(_ANNOTATIONS),
    }
    if namespace:
        metadata["namespace"] = namespace
    return metadata


def _cluster_role(name: str, rules: list[JsonObject], **labels: str) -> JsonObject:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": _metadata(name, labels={_AGGREGATE + key: value for key, value in labels.items()}),
        "rules": rules,
    }


def cluster_roles() -> list[JsonObject]:
    """The default ClusterRoles."""
    found = [
        _cluster_role("cluster-admin", [*_rules("* * *"), _path_rule("*", ["*"])]),
        _cluster_role("system:discovery", [_path_rule("get", _DISCOVERY_PATHS)]),
        _cluster_role("system:public-info-viewer", [_path_rule("get", _PUBLIC_PATHS)]),
        _cluster_role("system:issuer-discovery", [_path_rule("get", ["/.well-known", "/.well-known/*"])]),
        _cluster_role("system:monitoring", [_path_rule("get", _MONITORING_PATHS)]),
        _cluster_role("system:service-account-issuer-discovery", [_path_rule("get", _ISSUER_PATHS)]),
        _cluster_role(CONTROLLER_MANAGER, _rules(EVERY_CONTROLLER)),
        _cluster_role("system:aggregate-to-admin", _rules(_ADMIN), admin="true"),
        _cluster_role("system:aggregate-to-edit", _rules(_EDIT), edit="true"),
        _cluster_role("system:aggregate-to-view", _rules(_VIEW), view="true"),
    ]
    found += [_cluster_role(name, _rules(text)) for name, text in _PLAIN_ROLES.items()]
    found += [_cluster_role(PREFIX + name, _rules(text)) for name, text in CONTROLLERS.items()]
    for name, into in (("admin", ""), ("edit", "admin"), ("view", "edit")):
        role = _cluster_role(name, [], **({into: "true"} if into else {}))
        selector = {"matchLabels": {_AGGREGATE + name: "true"}}
        role["aggregationRule"] = {"clusterRoleSelectors": [selector]}
        found.append(role)
    return found


def roles() -> list[JsonObject]:
    """The default Roles in kube-system."""
    trust = "extension-apiserver-authentication"
    described = {
        f"{trust}-reader": f"{_READ} - configmaps {trust}",
        "system:controller:token-cleaner": """
delete,get,list,watch - secrets
create,patch,update -,events.k8s.io events
""",
        _LOCKING_CONTROLLERS: "watch - configmaps\nget,update - configmaps kube-controller-manager",
        _LOCKING_SCHEDULER: "watch - configmaps\nget,update - configmaps kube-scheduler",
        # Where the metrics API listens.
        _METRICS: "get,list,watch,patch - endpoints metrics-server",
    }
    return [
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "Role",
            "metadata": _metadata(name, "kube-system"),
            "rules": _rules(text),
        }
        for name, text in described.items()
    ]


def _binding(
    name: str, role: str, *subjects: tuple[str, str], namespace: str = "", kind: str = "ClusterRole"
) -> JsonObject:
    listed: list[JsonObject] = []
    for subject_kind, subject in subjects:
        if subject_kind == "ServiceAccount":
            account_namespace, _, account = subject.partition("/")
            listed.append({"kind": subject_kind, "name": account, "namespace": account_namespace})
        else:
            listed.append({"kind": subject_kind, "apiGroup": _GROUP, "name": subject})
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": _metadata(name, namespace),
        "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": role},
        "subjects": listed,
    }


def cluster_role_bindings() -> list[JsonObject]:
    """The default ClusterRoleBindings."""
    everybody = ("Group", "system:authenticated")
    found = [
        _binding("cluster-admin", "cluster-admin", ("Group", "system:masters")),
        _binding("system:monitoring", "system:monitoring", ("Group", "system:monitoring")),
        _binding("system:discovery", "system:discovery", everybody),
        _binding("system:basic-user", "system:basic-user", everybody),
        _binding("system:issuer-discovery", "system:issuer-discovery", everybody),
        _binding(
            "system:public-info-viewer",
            "system:public-info-viewer",
            everybody,
            ("Group", "system:unauthenticated"),
        ),
        _binding("system:node-proxier", "system:node-proxier", ("User", "system:kube-proxy")),
        _binding(_SERVICE_PROXY, _SERVICE_PROXY, ("User", "system:kube-proxy")),
        _binding(_METRICS, _METRICS, ("User", _METRICS)),
        _binding(_SECONDARY_NETWORKS, _SECONDARY_NETWORKS, ("Group", "system:nodes")),
        _binding(
            "system:kubelet-api-admin", "system:kubelet-api-admin", ("User", "kube-apiserver-kubelet-client")
        ),
        _binding(CONTROLLER_MANAGER, CONTROLLER_MANAGER, ("User", CONTROLLER_MANAGER)),
        _binding("system:kube-scheduler", "system:kube-scheduler", ("User", "system:kube-scheduler")),
        _binding("system:volume-scheduler", "system:volume-scheduler", ("User", "system:kube-scheduler")),
        _binding(
            "system:service-account-issuer-discovery",
            "system:service-account-issuer-discovery",
            ("Group", "system:serviceaccounts"),
        ),
    ]
    found += [_binding(PREFIX + name, PREFIX + name, ("User", CONTROLLER_MANAGER)) for name in CONTROLLERS]
    node = _binding("system:node", "system:node")
    node.pop("subjects")
    return [*found, node]


def role_bindings() -> list[JsonObject]:
    """The default RoleBindings."""
    controllers, scheduler = ("User", CONTROLLER_MANAGER), ("User", "system:kube-scheduler")
    reader = "extension-apiserver-authentication-reader"
    return [
        _binding(name, role, *subjects, namespace="kube-system", kind="Role")
        for name, role, subjects in (
            (f"system::{reader}", reader, (controllers, scheduler)),
            (_LOCKING_CONTROLLERS, _LOCKING_CONTROLLERS, (controllers,)),
            (_LOCKING_SCHEDULER, _LOCKING_SCHEDULER, (scheduler,)),
            (_METRICS, _METRICS, (("User", _METRICS),)),
        )
    ]
