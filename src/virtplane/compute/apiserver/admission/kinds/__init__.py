"""The webhooks of each kind: what is asked about it, put together from rules and defaults."""
