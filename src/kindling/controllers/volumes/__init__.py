"""Controllers of claims and volumes: binding, attaching, growing, protecting."""
