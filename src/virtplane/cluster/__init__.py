"""The cluster as all controllers see it: caches, settings, and how conditions are written."""
