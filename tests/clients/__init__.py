"""Independent clients, unmodified, against kindling's API server and controllers as processes."""
