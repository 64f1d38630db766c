"""Running virtual machines: controllers, node component, launcher, API extension."""
