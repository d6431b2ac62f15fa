"""CP-SAT models: times, streams, windows, and fewest crossings within a makespan."""
