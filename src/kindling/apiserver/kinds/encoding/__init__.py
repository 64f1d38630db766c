"""Objects as Kubernetes encodes them: which empty fields its JSON holds (``wire``), and reading protobuf."""
