"""What the theory predicts for a model, and how every tensor is to be stored: rules, or a search under a size budget."""
