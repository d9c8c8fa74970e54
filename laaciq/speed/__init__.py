"""Speed and memory of a quantized checkpoint beside its original, measured in turn in one child process.

That process is a child because what it needs in its environment must be there before torch is imported, and because a processor that lacks
an instruction kills it. Everything exported here imports neither torch nor transformers.
"""

from laaciq.speed.results import Bench, Kernels, Ratios, SpeedMeasurement

__all__ = ["Bench", "Kernels", "Ratios", "SpeedMeasurement"]
