"""Process boundaries: every process of an attempt starts inside one, and none outlives it.

          agent ── control socket ── zygote            one per agent: small, single-threaded, forks on request
            │                           │ fork
            └─── one socket per tree ── supervisor     one per tree: the dead-man's switch; init of a PID namespace,
                                        │ fork, exec   or a guardian outside the tree
                                        program        the user's code, with whatever it starts

The agent starts trees by `process_trees`. What each kind of boundary promises is data, in `promises`. The modules that
run in the zygote and the supervisors (`zygote`, `supervisor`, `boundaries`, `program_start`, `kernel`,
`dead_mans_switch`, `packets`, `waiting`, `cgroup`, `processes`, `procfs`, `ps`) import the standard library,
`rota.system` and each other only, so that forking them stays cheap. They read this file too, so it imports nothing.

Without Linux (`rota.system`) a pipe shows the end of a process instead of a pidfd, `ps` lists processes instead of
/proc, and the link is a stream instead of packets.
"""
