"""Passing requests on: to nodes (logs, exec, ...), to pods and services, to aggregated API servers."""
