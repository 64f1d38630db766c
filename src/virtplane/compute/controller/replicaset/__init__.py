"""Replica sets of instances: as many as asked for, finished ones replaced."""
