"""Nodes and ComponentStatuses."""
