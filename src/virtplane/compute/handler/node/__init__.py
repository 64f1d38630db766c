"""The node as virt-handler advertises it: devices, labels, heartbeat."""
