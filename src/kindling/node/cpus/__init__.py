"""Processors of their own for pods that want it: the static policy of a kubelet's CPU manager.

`topology` reads the machine and chooses processors (choosing is pure), `manager` keeps who has which.
"""
