"""What ``explain-status``, ``adm drain-plan`` and ``migrate --to`` know of a cluster, and what they conclude.

`facts` reads objects with the rights of who asks, `reading` with those of administrators; everything else is
pure: `room` (what nodes have left), `placement` (why no node takes a guest), `disks`, `causes` (one rule for
each status), `answer` (what is said of it), `draining`, `moving`.
"""
