"""Plugins (plugin.kubevirt.io): what virt-api checks and virt-handler runs.

`domaintable` and `domaintypes` have the types of a domain in expressions, `vmitypes` those of an instance.
`domainreading` makes records of a domain's XML, `domainmerging` writes what an expression gives into it.
`expressions` compiles and evaluates conditions and mutations. `hooks` decides which hooks are called, in
which order, and what a failure means; `sockets` where plugins may listen.
See docs/decisions/048-plugins.md.
"""
