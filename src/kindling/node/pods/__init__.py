"""Running pods: pure functions that render and decide, and one worker for each pod that carries it out.

`environment`, `downward_api`, `resources`, `security`, `sandbox` and `container` render CRI documents from
pods; `pod_actions` computes what to do next; `status` makes the pod's status. None of these does I/O.
`pleg` caches what the runtime has of each pod, `pod_workers` starts the workers, `pod_worker` syncs one pod,
and `status_manager` publishes statuses.
"""
