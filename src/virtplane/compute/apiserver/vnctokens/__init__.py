"""Tokens by which a guest's display is opened (the API group ``token.kubevirt.io``).

Each machine that was asked for has a service account, which may open its display and nothing else. Such a
token is an ordinary one of the cluster: the API server checks it, and the time at which it ends.
"""
