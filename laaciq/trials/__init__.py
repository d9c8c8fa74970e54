"""The one act of this software: make a candidate, measure languages against the original, keep the result under a key.

`Session` holds the model, the texts, the options and the store. A `Candidate` knows how it is put on a copy of the model. Everything that
measures (planning, runs, comparisons, studies, benchmarks) goes through these two.
"""
