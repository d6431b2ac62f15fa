"""Numbers fitted to profiles, and how much better they predict what they have not seen."""
