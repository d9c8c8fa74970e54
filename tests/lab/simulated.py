"""Data of as many languages as the lab has, for rules and claims."""

import numpy as np

from laaciq.corpus.families import family
from laaciq.trials.losses import Losses

_CODES = "ara ben deu ell eng eus fas fin fra heb hin hun ind ita jpn kat kaz kor mar nld pol por ron rus spa swa swe tam tel tha tur ukr"
CODES = _CODES.split()
FAMILIES = [family(code) or code for code in CODES]


def correlated(r, random, count=len(CODES)):
    """Two columns of `count` languages with the true correlation r."""
    x, z = random.standard_normal((2, count))
    return x, r * x + np.sqrt(1 - r**2) * z


def losses(means, random, *, noise=0.1, shared=None, documents=8, tokens=40):
    """ΔNLL per token about `means`; two with the same `shared` noise come from the same documents."""
    common = random.standard_normal((len(means), documents)) if shared is None else shared
    own = random.standard_normal((len(means), documents))
    per_token = np.asarray(means)[:, None] * (1 + noise * (0.9 * common + 0.4 * own))
    codes = CODES[: len(means)]
    names = [f"d{number}" for number in range(documents)]
    return Losses.of(
        dict(zip(codes, per_token * tokens, strict=True)),
        dict.fromkeys(codes, np.full(documents, tokens)),
        dict.fromkeys(codes, names),
        parallel=False,
        seed=0,
        draws=300,
    )
