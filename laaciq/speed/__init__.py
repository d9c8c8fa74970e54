"""Speed and memory of a quantized checkpoint and its original, measured in turns in one child process.

It is a child process because its environment must be set before torch is imported, and because a CPU without an instruction kills it.
Nothing exported here imports torch or transformers.
"""

from laaciq.speed.results import Bench, Kernels, Ratios, SpeedMeasurement

__all__ = ["Bench", "Kernels", "Ratios", "SpeedMeasurement"]
