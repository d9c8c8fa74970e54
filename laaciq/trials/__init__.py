"""The core of this software: make a candidate, measure languages against the original, store the result under a key.

`Session` holds the model, the texts, the options and the store. A `Candidate` can be applied to a copy of the model. Everything that
measures (planning, runs, comparisons, studies, benchmarks) uses these two.
"""
