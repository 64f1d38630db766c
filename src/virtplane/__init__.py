"""Virtual machines for Kubernetes; talks to nothing but the Kubernetes API, libvirt and its own node."""

__version__ = "0.1.0"
"""The one place of the version; the wheel takes it from here."""
