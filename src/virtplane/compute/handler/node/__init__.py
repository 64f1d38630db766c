"""What virt-handler reports about its node: device plugins, labels, heartbeat."""
