"""``autoscaling``: HorizontalPodAutoscalers in version 2, and in version 1 by conversion."""
