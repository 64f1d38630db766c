"""Endpoints, and EndpointSlices of ``discovery.k8s.io``, whose addresses and ports follow the same rules."""
