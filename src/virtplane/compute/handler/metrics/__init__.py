"""Metrics of the node and the guest that the guest itself reads, in the form of vhostmd.

``host`` reads the node, ``report`` makes the document and the disk of it, ``provider`` keeps the disk up to
date and answers on the channel. Nothing here trusts the guest or its launcher: requests are short and slow.
"""
