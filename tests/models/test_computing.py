import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from laaciq.errors import BadOption
from laaciq.models import find_model, load
from laaciq.models.computing import computing_dtype
from laaciq.models.loading import skeleton
from tests.tiny import save_tiny


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_a_gpu_computes_in_the_type_of_the_checkpoint(stored, tmp_path):
    """It is known before weights are loaded, also if the configuration does not name it."""
    folder, gpu = find_model(save_tiny("llama", tmp_path, dtype=stored)), torch.device("cuda")
    assert computing_dtype(skeleton(folder), gpu) == stored
    assert computing_dtype(skeleton(folder), gpu, torch.float16) == torch.float16
    assert computing_dtype(skeleton(folder), torch.device("cpu")) == torch.float32
    config = json.loads((tmp_path / "config.json").read_text())
    del config["dtype"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    as_loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype="auto").dtype
    assert computing_dtype(skeleton(folder), gpu) == as_loaded == stored
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "gptq"}}))
    assert computing_dtype(skeleton(folder), gpu) == torch.float16


def test_devices():
    with pytest.raises(BadOption, match="auto, cpu or cuda"):
        load(find_model("reference"), device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(BadOption, match="no CUDA device"):
            load(find_model("reference"), device="cuda")
