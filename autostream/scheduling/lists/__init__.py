"""List scheduling, and the program as it is: where everything begins."""
