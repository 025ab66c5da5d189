"""Ops that users declare from Python, like those of `difflang.ops`: signatures, rules over the builder, laws, pages."""
