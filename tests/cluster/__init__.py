"""Real node processes on real servers, under faults. A run in which the faults had no effect is void, not passed."""
