"""The metrics API (metrics.k8s.io), which ``kubectl top`` and autoscalers read.

`component` serves it to the API server and asks the nodes' agents when somebody asks (`scraping`); `samples`
makes usage of two readings, `documents` answers of usage; both are pure. `manifests` has what ``up`` creates.
"""
