"""Every public function of the library is compared with others or closed forms: value and derivatives, f32 and f64.

Most are in a table of `Like` rows, which are compared so. The others are named here, with the file that compares them
and, of those without a derivative, why there is none.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from difflang.base.source import Source
from difflang.syntax import tree
from difflang.syntax.parse import parse
from stdlib.test_edges import TABLES
from support.documents import ROOT

COMPARED = {
    "test_adaptive": "adaptive first_step",
    "test_chains": "elbo hmc metropolis shuffled split_rows",
    "test_distributions": "draw draw_multivariate_normal",
    "test_linalg": "least_squares",
    "test_math": """gammainc gammaincc gammaincc_each log_poisson betainc betainc_each betaincc betaincc_each log_beta
        log_choose""",
    "test_nn": """dropout glorot_normal glorot_uniform he_normal init_attention init_batch_stats init_conv1d init_conv2d
        init_conv3d init_deconv1d init_deconv2d init_deconv3d init_dense init_depthwise2d init_embedding init_gru
        init_lstm init_norm init_rnn lecun_normal orthogonal""",
    "test_quad": "monte_carlo",
    "test_special_law": """boxcox comb entr expi expn factorial fresnel hyp1f1 hyp2f1 kl_div log_betainc log_betaincc
        log_gammainc log_gammaincc multigammaln ndtri ndtri_exp owens_t poch rel_entr sici soft_min spence xlog1py""",
    "test_tails": """betainc_pair betaincinv gammainc_each gammainccinv gammaincinv log_cdf log_sf quantile_of sf""",
    "test_signal": "analytic",
    "test_special": """bessel_i bessel_i_scaled bessel_j chebyshev chebyshev_series dawson elliptic_e elliptic_k erfcx
        exp_integral hermite hurwitz_zeta laguerre lambert_w legendre log1mexp log_difference log_normal_cdf
        polygamma""",
}
INTEGERS = {
    "test_chains": "batches block_batches bootstrap folds",
    "test_distributions": "draw_categorical histogram",
    "test_linalg": "rank",
    "test_nn": "padding_mask",
}


def public() -> set[str]:
    """The public functions of all modules."""
    sources = [Source(path.name, path.read_text(encoding="utf-8")) for path in (ROOT / "stdlib").glob("*.dfl")]
    items = [item for source in sources for item in parse(source).module.items]
    return {item.name for item in items if isinstance(item, tree.Fn) and item.pub}


def in_tables() -> set[str]:
    """The names in rows that compare gradients."""
    rows = [row for _, table in TABLES.values() for row in table if not row.exact]
    return {name for row in rows for name in re.findall(r"\w+", row.body)}


def named(lists: dict[str, str]) -> set[str]:
    """The names of a list, each of which its file mentions."""
    found: set[str] = set()
    for stem, names in lists.items():
        text = Path(__file__).with_name(f"{stem}.py").read_text(encoding="utf-8")
        missing = [name for name in names.split() if not re.search(rf"\b{name}\b", text)]
        assert not missing, f"{stem} says nothing of {', '.join(missing)}"
        found.update(names.split())
    return found


@pytest.mark.daily
def test_every_public_function_is_compared() -> None:
    functions, rows, others = public(), in_tables(), named(COMPARED) | named(INTEGERS)
    assert len(functions) >= 250
    assert not functions - rows - others
    assert not others - functions
    assert not others & rows
