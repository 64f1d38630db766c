"""Pods, their templates and bindings. The rules for pod templates serve the workload kinds as well."""
