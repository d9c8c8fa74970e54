"""Planning: what the theory predicts for a model, and how every tensor is stored, by rules or by a search under a size budget."""
