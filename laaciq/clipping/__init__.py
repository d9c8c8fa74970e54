"""Clipping thresholds, by closed forms (the noise model) and by the true error of the quantizer. The two are never mixed."""
