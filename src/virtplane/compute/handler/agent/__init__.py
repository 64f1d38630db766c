"""The agent in a guest: what it says, its probes, and what it is asked to do."""
