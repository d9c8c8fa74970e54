import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from laaciq.quantization.products import why_no_triton


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_products_with_packed_matrices_equal_those_with_dequantized_weights():
    """In a process of its own: Triton decides at its import whether it interprets kernels."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    command = [sys.executable, "-m", "tests.quantization.product_cases", device]
    settings = {"TRITON_INTERPRET": "1" if device == "cpu" else "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | settings)
    assert done.returncode == 0, done.stderr


def test_why_triton_kernels_do_not_run():
    assert why_no_triton(torch.device("cpu")) == "Triton kernels need a GPU"
