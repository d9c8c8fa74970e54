"""Studies of one model: interventions on its parts, bits or calibration text, each measured by language."""
