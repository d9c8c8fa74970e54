"""Speed and quality against named peers, each measured in the run that prints it."""
