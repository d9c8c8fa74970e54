"""Infrastructure: atomic files, stores of results, recipes, progress, threads."""
