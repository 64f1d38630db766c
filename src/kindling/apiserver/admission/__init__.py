"""Admission: what happens to a request between its decoding and the write.

``chain.build_chain(environment)`` puts the plugins in order. Each plugin is a module; it changes the
object of a request (``mutate``) or refuses it (``validate``) and sees nothing of the server but the
``AdmissionEnvironment``.
"""
