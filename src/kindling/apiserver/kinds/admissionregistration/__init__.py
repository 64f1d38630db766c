"""``admissionregistration.k8s.io``: webhook configurations and admission policies with their bindings."""
