"""difflang: a small language for differentiable programs."""
