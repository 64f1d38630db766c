"""What each controller of the cluster may do, as data: lines of ``verbs groups resources`` by controller.

Names are those that Kubernetes gives its controllers. A controller has what it uses here, which for some is
less and for some is more than there. All of them are bound to the one user as whom their process acts.
"""

from __future__ import annotations

CONTROLLER_MANAGER = "system:kube-controller-manager"
PREFIX = "system:controller:"

_READ = "get,list,watch"
_PODS = "create,delete,get,list,patch,watch - pods"
_REVISIONS = "create,delete,get,list,patch,update,watch apps controllerrevisions"

EVERY_CONTROLLER = """
create,patch,update -,events.k8s.io events
list,watch * *
get - serviceaccounts
delete,get,update - secrets
"""
"""Events, the caches that controllers share, and the tokens in secrets of service accounts."""

CONTROLLERS = {
    "attachdetach-controller": f"""
list,watch - persistentvolumeclaims,persistentvolumes
{_READ} - nodes
patch,update - nodes/status
list,watch - pods
{_READ} storage.k8s.io csidrivers,csinodes
create,delete,get,list,watch storage.k8s.io volumeattachments
""",
    "clusterrole-aggregation-controller": """
escalate,get,list,patch,update,watch rbac.authorization.k8s.io clusterroles
""",
    "cronjob-controller": f"""
{_READ} batch cronjobs
update batch cronjobs/status
create,delete,get,list,patch,update,watch batch jobs
""",
    "daemon-set-controller": f"""
{_READ} apps daemonsets
update apps daemonsets/status
list,watch - nodes
{_PODS}
{_REVISIONS}
""",
    "deployment-controller": f"""
get,list,patch,update,watch apps deployments
update apps deployments/status
create,delete,get,list,patch,update,watch apps replicasets
{_READ} - pods
""",
    "disruption-controller": f"""
{_READ} apps deployments,replicasets,statefulsets
{_READ} - replicationcontrollers,pods
{_READ} policy poddisruptionbudgets
update policy poddisruptionbudgets/status
get * */scale
""",
    "endpoint-controller": f"""
{_READ} - pods,services
create,delete,get,list,update,watch - endpoints
""",
    "endpointslice-controller": f"""
{_READ} - nodes,pods,services
create,delete,get,list,update,watch discovery.k8s.io endpointslices
""",
    "endpointslicemirroring-controller": f"""
{_READ} - endpoints,services
create,delete,get,list,update,watch discovery.k8s.io endpointslices
""",
    "ephemeral-volume-controller": f"""
{_READ} - pods
create,get,list,watch - persistentvolumeclaims
""",
    "expand-controller": f"""
get,list,patch,update,watch - persistentvolumes
patch,update - persistentvolumeclaims/status
{_READ} - persistentvolumeclaims
{_READ} storage.k8s.io storageclasses
""",
    "generic-garbage-collector": """
delete,get,list,patch,update,watch * *
""",
    "horizontal-pod-autoscaler": f"""
{_READ} autoscaling horizontalpodautoscalers
update autoscaling horizontalpodautoscalers/status
get,update * */scale
{_READ} - pods
list metrics.k8s.io pods
""",
    "job-controller": f"""
get,list,patch,update,watch batch jobs
update batch jobs/status
{_PODS}
""",
    "namespace-controller": """
delete,get,list,watch - namespaces
update - namespaces/finalize,namespaces/status
delete,deletecollection,get,list,watch * *
""",
    "node-controller": f"""
delete,get,list,patch,update,watch - nodes
patch,update - nodes/status
patch,update - pods/status
delete,get,list,watch - pods
{_READ} coordination.k8s.io leases
""",
    "persistent-volume-binder": f"""
create,delete,get,list,update,watch - persistentvolumes
update - persistentvolumes/status
get,list,update,watch - persistentvolumeclaims
update - persistentvolumeclaims/status
{_READ} - pods
{_READ} storage.k8s.io storageclasses
""",
    "pod-garbage-collector": f"""
delete,list,watch - pods
patch,update - pods/status
{_READ} - nodes
""",
    "pv-protection-controller": """
get,list,patch,update,watch - persistentvolumes
""",
    "pvc-protection-controller": f"""
get,list,patch,update,watch - persistentvolumeclaims
{_READ} - pods
""",
    "replicaset-controller": f"""
get,list,update,watch apps replicasets
update apps replicasets/status
{_PODS}
""",
    "replication-controller": f"""
get,list,update,watch - replicationcontrollers
update - replicationcontrollers/status
{_PODS}
""",
    "resourcequota-controller": """
list,watch * *
update - resourcequotas/status
""",
    "root-ca-cert-publisher": """
create,list,update,watch - configmaps
list,watch - namespaces
""",
    "service-account-controller": """
create,list,watch - serviceaccounts
list,watch - namespaces
""",
    "service-controller": f"""
{_READ} - services
patch,update - services/status
list,watch - nodes
""",
    "statefulset-controller": f"""
{_READ} apps statefulsets
update apps statefulsets/status
create,delete,get,list,patch,update,watch - pods
{_REVISIONS}
create,delete,get,list,update,watch - persistentvolumeclaims
""",
    "ttl-after-finished-controller": """
delete,get,list,watch batch jobs
""",
    "ttl-controller": """
list,patch,update,watch - nodes
""",
    "volumeattributesclass-protection-controller": f"""
get,list,patch,update,watch storage.k8s.io volumeattributesclasses
{_READ} - persistentvolumeclaims,persistentvolumes
""",
}
