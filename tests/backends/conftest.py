import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Gemma3ForCausalLM, Gemma3TextConfig

from laaciq import read_split, reference
from tests.tiny import save_tiny


@pytest.fixture(scope="session")
def tokenizer():
    return AutoTokenizer.from_pretrained(reference.path())


@pytest.fixture(scope="session")
def texts():
    calibration = read_split("builtin").calibration
    return [calibration[code].texts[0] for code in ("eng", "swa", "tam", "zho")]


@pytest.fixture(scope="session")
def two_blocks():
    """The first two blocks of the reference model, in 16 bits as the libraries' users have it."""
    model = AutoModelForCausalLM.from_pretrained(reference.path(), dtype=torch.bfloat16, num_hidden_layers=2)
    return model.requires_grad_(False).eval()


@pytest.fixture(scope="session")
def gemma(tokenizer):
    """Norms with weights other than the initial ones, because AWQ scales them; 320 inputs that 128 does not divide."""
    config = Gemma3TextConfig(
        vocab_size=len(tokenizer), hidden_size=256, intermediate_size=320, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, head_dim=64, sliding_window=64, max_position_embeddings=1024,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Gemma3ForCausalLM(config)
        for name, parameter in model.named_parameters():
            if "norm" in name:
                torch.nn.init.normal_(parameter, std=0.2)
    return model.to(torch.bfloat16).requires_grad_(False).eval()


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory):
    """Conv1D layers, and its own tokenizer."""
    folder = save_tiny("gpt2", tmp_path_factory.mktemp("models") / "gpt2", dtype=torch.bfloat16)
    return AutoModelForCausalLM.from_pretrained(folder).requires_grad_(False).eval(), AutoTokenizer.from_pretrained(
        folder
    )
