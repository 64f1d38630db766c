"""cdi-operator: the Containerized Data Importer installed as a CDI object says.

`webhooks` is what the API server must know of cdi-apiserver.
"""
