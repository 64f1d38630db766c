"""Virtual machines for Kubernetes; talks to nothing but the Kubernetes API, libvirt and its own node."""

__version__ = "0.1.0"
"""The one place of the version; the wheel takes it from here."""

KUBEVIRT_VERSION = f"v1.9.0+virtplane.{__version__}"
"""The version that clients are told: the release of KubeVirt whose API this is, and who built it.

KubeVirt's own virtctl compares the major and minor version with its own, and speaks up when they differ.
"""
