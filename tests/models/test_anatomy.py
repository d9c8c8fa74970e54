import pytest
import torch
from torch import nn

from laaciq.errors import BadOption, BrokenModel
from laaciq.models import dissect, find_model, load
from laaciq.options import WeightOptions
from laaciq.planning.rules import make_plans
from tests.tiny import ARCHITECTURES, KIND, save_tiny

# Linear layers of a block, counted by hand from the architectures' papers; mT5 differs between encoder and decoder.
LINEARS_PER_BLOCK = {"gpt2": 4, "gpt_neox": 4, "bloom": 4, "opt": 6, "xglm": 6, "bert": 6, "xlm-roberta": 6}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_blocks_and_linear_layers_are_found(architecture, tmp_path):
    model = load(find_model(save_tiny(architecture, tmp_path)))
    anatomy = model.anatomy
    assert model.kind == KIND[architecture]
    if architecture == "mt5":
        assert len(anatomy.block_names) == 4
        assert len(anatomy.linears) == 2 * 7 + 2 * 11
    else:
        assert len(anatomy.block_names) == 2
        assert len(anatomy.linears) == 2 * LINEARS_PER_BLOCK.get(architecture, 7)
    assert {linear.block for linear in anatomy.linears} == set(range(len(anatomy.block_names)))
    names = {name for name, _ in model.module.named_parameters()}
    assert {linear.name for linear in anatomy.linears} <= names


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_components_are_told_apart(architecture, tmp_path):
    """Two or three linear layers of each block are the feed-forward part, all others attention."""
    anatomy = load(find_model(save_tiny(architecture, tmp_path))).anatomy
    for block in range(len(anatomy.block_names)):
        components = [linear.component for linear in anatomy.linears if linear.block == block]
        assert components.count("feed-forward") == (2 if architecture in LINEARS_PER_BLOCK else 3)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tied_embeddings_are_counted_once(architecture, tmp_path):
    model = load(find_model(save_tiny(architecture, tmp_path)))
    distinct = {p.data_ptr(): p.numel() for p in model.module.parameters()}
    assert model.anatomy.parameter_count() == sum(distinct.values())
    tied = model.module.get_input_embeddings().weight is model.module.get_output_embeddings().weight
    assert (model.anatomy.parameter_count("head") == 0) == tied


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_token_matrices_are_found_once_with_all_that_use_them(architecture, tmp_path):
    """By hand: the tables of tokens and the heads, never of positions."""
    tied = {
        "gemma3": ("model.embed_tokens", "lm_head"),
        "gpt2": ("transformer.wte", "lm_head"),
        "opt": ("model.decoder.embed_tokens", "lm_head"),
        "bloom": ("transformer.word_embeddings", "lm_head"),
        "xglm": ("model.embed_tokens", "lm_head"),
        "bert": ("bert.embeddings.word_embeddings", "cls.predictions.decoder"),
        "xlm-roberta": ("lm_head.decoder", "roberta.embeddings.word_embeddings"),
        "mt5": ("shared", "encoder.embed_tokens", "decoder.embed_tokens", "lm_head"),
    }
    untied = [("gpt_neox.embed_in" if architecture == "gpt_neox" else "model.embed_tokens",), ("lm_head",)]
    model = load(find_model(save_tiny(architecture, tmp_path)))
    matrices = model.anatomy.token_matrices
    assert [matrix.used_by for matrix in matrices] == ([tied[architecture]] if architecture in tied else untied)
    roles = {part.name: part.role for part in model.anatomy.tensors}
    for matrix in matrices:
        assert roles[matrix.name] in ("embedding", "head")
        assert matrix.matrix is model.module.get_parameter(matrix.name)
        assert matrix.obstacle is None


class Shifted(nn.Embedding):
    """Looks rows up and adds a constant."""

    def __init__(self, rows, width):
        super().__init__(rows, width)
        self.shift = nn.Parameter(torch.zeros(width))


class Scaled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def tied_to_another(module):
    module.model.norm.table = module.model.embed_tokens.weight


@pytest.mark.parametrize(
    ("change", "obstacle_text"),
    [
        (lambda m: setattr(m.model, "embed_tokens", Shifted(400, 32)), "model.embed_tokens also has shift"),
        (lambda m: setattr(m.model.embed_tokens, "max_norm", 1.0), "changes its rows as it looks them up"),
        (lambda m: setattr(m, "lm_head", Scaled(32, 400)), "lm_head is a Scaled, not a linear layer"),
        (tied_to_another, "model.norm.table is the same matrix"),
    ],
)
def test_what_keeps_a_token_matrix_from_being_quantized(tmp_path, change, obstacle_text):
    module = load(find_model(save_tiny("llama", tmp_path))).module
    change(module)
    anatomy = dissect(module)
    (obstacle,) = filter(None, (matrix.obstacle for matrix in anatomy.token_matrices))
    assert obstacle.startswith("in LlamaForCausalLM, ")
    assert obstacle_text in obstacle
    with pytest.raises(BadOption, match=r"in LlamaForCausalLM, .*: leave out --embedding-bits"):
        make_plans(anatomy, WeightOptions(embedding_bits=4))


def test_conv1d_is_seen_as_outputs_by_inputs(tmp_path):
    """GPT-2's fused query-key-value maps 32 inputs to 96 outputs but is stored as (32, 96)."""
    model = load(find_model(save_tiny("gpt2", tmp_path)))
    fused = next(linear for linear in model.anatomy.linears if "c_attn" in linear.name)
    assert fused.shape == (96, 32)
    with torch.no_grad():
        fused.matrix[5, 7] = 42.0
    assert fused.module.weight[7, 5] == 42.0


def test_a_model_without_linear_layers_is_refused():
    with pytest.raises(BrokenModel, match="nothing to quantize"):
        dissect(nn.Sequential(nn.Embedding(3, 4)))
