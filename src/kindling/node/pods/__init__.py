"""Running pods: pure rendering and decisions, and the worker of each pod that carries them out.

`environment`, `fields`, `resources`, `security`, `sandbox` and `container` render CRI documents from pods;
`actions` decides what to do next; `status` says how the pod is. None of these does I/O. `worker` does.
"""
