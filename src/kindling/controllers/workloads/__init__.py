"""Controllers that make pods and keep them: Deployments, Jobs, StatefulSets and others."""
