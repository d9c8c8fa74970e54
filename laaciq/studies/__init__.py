"""Studies of one model: interventions on its parts, its bits or the text that it is calibrated on, each measured by language."""
