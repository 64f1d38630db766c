"""Defaults on creation: pure functions that change a copy in place."""
