"""The controllers of the control plane; each is an ordinary API client."""
