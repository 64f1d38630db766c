"""What drives a CSI driver from the API: volumes, attachments, growth, snapshots, registration, liveness.

One program (``virtplane csi``) with the behaviour of kubernetes-csi's sidecars, for any driver that listens
on a unix socket. Each of them is a part that is asked for by name; parts of one process share the connection.

=================  ====================================================================================
`driver`           the connection: calls, capabilities, errors
`parts`            what every part is given; retries, secrets, patches
`provisioner`      claims become volumes
`preparation`      their requests, of what the cluster says now
`requests`         what is asked for, and what the answer becomes; `parameters`, `topology`: its parts
`sources`          what volumes are filled from; `content_sources`: whether they may be
`deletion`         released volumes are deleted
`placement`        which node's provisioner takes a claim, where each node has one
`protection`       sources of clones and of restored snapshots stay until they are copied
`capacity`         CSIStorageCapacity objects for the scheduler
`attacher`         VolumeAttachments
`resizer`          claims that grow (`resizing`: the decisions)
`snapshotter`      VolumeSnapshotContents, on the driver's side
`contents`         when what is done for contents, single ones or of groups, and what is written of them
`registrar`        the kubelet learns of the driver
`liveness`         ``/healthz`` by the driver's own word
`options`          the command line
`process`          puts the parts together; `command` is the program
=================  ====================================================================================

Everything survives being killed at any point: what a call may leave behind is written down before the call,
and calls are repeated under the same name until their outcome is known.
"""
