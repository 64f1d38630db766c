"""Why a deleted object is still there: what each finalizer waits for, until when, and what ends the wait.

`holders` is the table of all finalizers that components set, each with its deadline or the reason why it has
none. `machines`, `disks`, `installations` and `pods` are its rules, which read what the object depends on
through `reading` and conclude a `waits.Wait`; `explaining` chooses among them. `reporter` says it in events,
`virtctl explain-status` to who asks. Nothing here ends a wait: `cluster.deadlines` does, in the controllers.
"""
