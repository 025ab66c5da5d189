"""Solvers as programs write them."""

from __future__ import annotations

# Conjugate gradients over any vectors: what a rule `by linear_solve` is given to.
CG = """fn cg[V: vec](A: V -o V, b: V, tol: f64) -> V {
  var x = zero(b)
  var r = b
  var p = b
  var rr = dot(r, r)
  while rr > tol^2 {
    let ap = A(p)
    let a = rr / dot(p, ap)
    x += a * p
    r -= a * ap
    let next = dot(r, r)
    p = r + next / rr * p
    rr = next
  }
  x
}
"""
