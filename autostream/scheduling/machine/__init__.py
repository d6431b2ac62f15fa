"""A problem in numbers, and what the machine makes of a plan: who gets cores when, and when everything ends."""
