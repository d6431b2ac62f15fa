"""Plans with fewer waits between streams: what each of them is worth."""
