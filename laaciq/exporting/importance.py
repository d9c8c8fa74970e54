"""For llama.cpp's quantizer: an importance matrix over all languages, and the types of a plan by tensor.

llama-quantize weights the squared error of every weight by the mean square of its input. llama.cpp's tool takes that mean over one text,
where a language counts by its share of the text. Here a language counts by its weight, not by the length of its text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from laaciq.engine.files import write_text
from laaciq.errors import BadOption
from laaciq.models import LanguageModel
from laaciq.models.gguf_architecture import tensor_names
from laaciq.models.gguf_file import gguf_file, import_gguf
from laaciq.options import FULL_BITS
from laaciq.profiling.results import Profile
from laaciq.quantization.plan import Plan

# Bits per weight of llama.cpp's types, scales included.
TYPES = {"q2_K": 2.625, "q3_K": 3.4375, "q4_K": 4.5, "q5_K": 5.5, "q6_K": 6.5625, "q8_0": 8.5, "f16": 16.0}
# Tokens that llama.cpp's tool reads at a time; it states its counts in such chunks.
_CHUNK = 512


def importance(profile: Profile, weights: Mapping[str, float] | None = None) -> dict[str, np.ndarray]:
    """Σ_λ w_λ E_λ[x_j²] by tensor, for every input j; `weights` as in a plan, equal by default."""
    known = [profiled.language for profiled in profile.languages]
    weights = weights or dict.fromkeys(known, 1.0)
    if unknown := [code for code in weights if code not in known]:
        raise BadOption(f"the profile has no {unknown[0]}: it has {', '.join(sorted(known))}")
    shares = np.array(list(weights.values())) / sum(weights.values())
    means = {}
    for name in profile.languages[0].input_moments:
        squares = np.stack([profile[code].input_mean_squares(name) for code in weights])
        means[name] = shares @ squares.astype(np.float64)
    return means


def write_importance(profile: Profile, out: Path, *, weights: Mapping[str, float] | None = None) -> None:
    """Write the importance matrix as a GGUF file for `llama-quantize --imatrix`: sums of squares and token counts by tensor."""
    gguf = import_gguf()
    means = importance(profile, weights)
    translate = tensor_names(profile.architecture.model_type, profile.architecture.blocks)
    tokens = sum(r.tokens for r in profile.languages if weights is None or r.language in weights)
    with gguf_file(out, profile.architecture.model_type) as writer:
        writer.add_type(gguf.GGUFType.IMATRIX)
        writer.add_array(gguf.Keys.IMatrix.DATASETS, [profile.texts])
        writer.add_uint32(gguf.Keys.IMatrix.CHUNK_COUNT, max(1, tokens // _CHUNK))
        writer.add_uint32(gguf.Keys.IMatrix.CHUNK_SIZE, _CHUNK)
        for name, mean in means.items():
            writer.add_tensor(f"{translate(name)}.in_sum2", (mean * tokens).astype(np.float32)[None])
            writer.add_tensor(f"{translate(name)}.counts", np.full((1, 1), tokens, dtype=np.float32))


def tensor_types(model: LanguageModel, plan: Plan) -> dict[str, str]:
    """The llama.cpp type with the nearest bits per weight for each tensor of the plan, by its GGUF name.

    What the plan leaves in 16 bits stays there, including embeddings and head, for which llama-quantize would choose another type.
    """
    config = model.module.config
    translate = tensor_names(config.model_type, config.num_hidden_layers)
    bits = {matrix.name: float(FULL_BITS) for matrix in model.anatomy.token_matrices}
    bits |= {tensor.name: tensor.stored_bits / tensor.weights for tensor in plan.tensors}
    return {translate(name): min(TYPES, key=lambda kind: abs(TYPES[kind] - size)) for name, size in bits.items()}


def write_tensor_types(model: LanguageModel, plan: Plan, out: Path) -> None:
    """Write a file for `llama-quantize --tensor-type-file`: one pattern and type per line."""
    lines = [f"^{re.escape(name)}$={kind}\n" for name, kind in tensor_types(model, plan).items()]
    write_text(out, "".join(lines))
