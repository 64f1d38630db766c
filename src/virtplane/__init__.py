"""Virtual machines for Kubernetes; talks to nothing but the Kubernetes API, libvirt and its own node."""
