"""A module for each kind of source: what of it is where, and how to get there."""
