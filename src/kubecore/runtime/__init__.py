"""What controllers stand on: informers, work queues, controllers, managers, leases, events."""
