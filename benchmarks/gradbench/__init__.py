"""The evals of GradBench: plain first programs, their twins in JAX, and inputs of the published shapes."""
