"""All measurements by name. Each is made once for a model, whatever number of claims need it, and is kept in the session's store."""

from laaciq.lab.measurements.bench import Bench, Measurement
from laaciq.lab.measurements.block_sets import BLOCK_SETS
from laaciq.lab.measurements.candidates import CANDIDATES
from laaciq.lab.measurements.interventions import INTERVENTIONS
from laaciq.lab.measurements.variants import VARIANTS

PROFILE = Measurement(
    "profile", "κ, activations, tokenization, alignment and redundancy", lambda bench: bench.table, Bench.profile_cost
)
MEASUREMENTS = {
    measurement.name: measurement for measurement in (PROFILE, *CANDIDATES, BLOCK_SETS, *INTERVENTIONS, VARIANTS)
}

__all__ = ["MEASUREMENTS", "Bench", "Measurement"]
