"""Time: schedules, zones, and the instants that follow from them."""
