"""The cluster as all controllers see it: caches, settings, and how objects and conditions are written."""
