"""Search from plan to plan, each judged by running it."""
