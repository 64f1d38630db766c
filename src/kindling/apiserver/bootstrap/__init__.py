"""Objects every cluster has from its first start: namespaces, the API's own service, roles, priorities.

They are made when absent; roles of the system are also brought back to their rules at each start (unless
annotated ``rbac.authorization.kubernetes.io/autoupdate: "false"``), as Kubernetes does.
"""
