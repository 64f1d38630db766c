"""Streams to a guest: consoles, displays, ports, USB devices, OpenSSH."""
