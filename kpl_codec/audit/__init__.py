"""Was everything that producers put handled? What was not, by name, and why."""
