"""Running work: atomic files, resuming, progress."""
