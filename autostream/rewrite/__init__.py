"""Write a schedule into an FX graph, in the vocabulary of a backend."""
