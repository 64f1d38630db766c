"""The asynchronous API client: kubeconfig, REST, watch, streams."""
