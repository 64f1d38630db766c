"""Controllers of service accounts, their tokens, and roles."""
