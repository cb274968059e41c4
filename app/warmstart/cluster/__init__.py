"""The cluster: the own pod, claims as Leases, Jobs, what pre-warming reads, Events. The only room that imports kubernetes.

`resources`, `pods` and `jobs` need no client and import in no time; `api` imports it when it connects.
"""
