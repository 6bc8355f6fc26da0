"""What is built once on the few verbs of any coordinator: lock, election, queue, notices, members."""
