"""The importer: a program that fills one volume from one source and ends (behaviour of CDI's importer pod).

| module | what it has |
|---|---|
| `main` | the process: environment in, termination message and exit code out |
| `settings` | the environment, typed |
| `outcome` | how an import can end, and the texts that controllers and users read |
| `formats` | which compression or disk format some bytes begin |
| `headers` | disk headers that would make QEMU read other files |
| `streams` | bytes on their way: counted, hashed, decompressed, bounded |
| `gunzip` | gzip, undone in this process |
| `write_behind` | writing while the next bytes come |
| `target` | the volume: free space, sparse writing, resizing |
| `qemu` | `qemu-img` with bounds and without references |
| `ovirt` | an oVirt engine's REST API: disks, snapshots, image transfers |
| `vsphere` | vSphere's SOAP API: machines, disks, snapshots, changed areas |
| `nbd` | reads from an NBD server |
| `http` | objects on web servers, read from any offset |
| `ranges` | ranges of them, of which those in a row come in one answer |
| `remote_disk` | a disk on a web server as a local NBD export, so that nothing is stored twice |
| `archives` | tar archives: into the volume, or one disk out of one |
| `sources` | a module for each kind of source |
| `pipeline` | from source to finished disk |
| `progress` | the metric that the controller reads |
"""
