"""CEL with the Kubernetes function library and cost limits, behind one small interface."""
