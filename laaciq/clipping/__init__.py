"""Clipping: where to cut the weights off, by closed forms (the noise model) and by the true error of the quantizer. Never mixed."""
