"""The libvirt daemon of one launcher: its connection, its calls, the guest's domain."""
