"""Equal instances of recursive calls are computed once."""
