"""The controllers of the cluster: what kube-controller-manager does on other clusters.

One module per controller; `kindling.controllers.main` lists them. Each is made with the `Environment`,
declares the caches it needs and adds its controllers to the manager. Decisions are pure functions over
objects from the caches; only the reconcile methods talk to the server.
"""
