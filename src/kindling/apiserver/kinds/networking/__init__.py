"""``networking.k8s.io``: Ingresses, IngressClasses, NetworkPolicies, ServiceCIDRs, IPAddresses."""
