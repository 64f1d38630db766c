"""The node as virt-handler advertises it: what guests can find here, devices, labels, heartbeat."""
