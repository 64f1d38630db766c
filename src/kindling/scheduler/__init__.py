"""Places pods on nodes; an ordinary API client."""
