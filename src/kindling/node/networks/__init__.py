"""Secondary networks of pods, as Multus attaches them: the Multi-Net specification inside the node agent.

`selection` reads a pod's annotations, `definitions` the NetworkAttachmentDefinitions that they name,
`policy` decides what of a definition root runs, `changes` what to attach and detach; `network_status` makes
the status annotation. None of these acts. `cni` runs the plugins, `records` writes down what was attached,
`routes` chooses default routes, `claims` keeps persistent addresses, and `attachments` does the work with
all of them. See docs/decisions/030-secondary-networks.md.
"""
