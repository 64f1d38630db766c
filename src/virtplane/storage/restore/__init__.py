"""Restores of machines from snapshots: claims from volume snapshots, and the machine as it was."""
