"""The scheduler: chooses a node for every pod that has none.

`snapshot` is what it knows, `filters` say which nodes a pod may go to and why not to others, `scoring` says
which is best, `decision` puts both together; all of that is pure. `loop` takes pods in order, binds them and
records events and conditions.
"""
