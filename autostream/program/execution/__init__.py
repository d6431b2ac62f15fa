"""Real runs on the CPU, in every order that a program allows."""
