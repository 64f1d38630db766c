"""cdi-operator: the Containerized Data Importer installed as a CDI object says.

`controller` reconciles the one CDI object that holds the `claim`; `status` reports, `writing` writes, and
`removal` undoes it. `installation` lists what is installed: `workloads`, `component_rights`, `user_roles`,
`webhooks`; `certificates` are issued first. `monitoring` and `extras` (routes, constraints, populators)
are for clusters that serve their kinds. `manifests` is what ``virtplane install`` applies, with
`operator_rights`; `policies` are network policies for namespaces that need them. `operator` is the component,
`running` its controller with watches, and `compact` runs CDI's components where all share one process.
`verbosity` is how much they log.
"""
