"""The webhooks of each kind, composed of rules and defaults."""
