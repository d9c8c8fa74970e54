"""Our checkpoints in the formats of other libraries: layouts, packing, folding, the rules of runtimes."""
