"""What is built on the coordinator port: locks, elections, notices."""
