"""``discovery.k8s.io``: EndpointSlices. Endpoints themselves are in ``core``."""
