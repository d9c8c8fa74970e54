"""Logits that llama.cpp itself computes from a GGUF file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from laaciq.backends.llamacpp import captured_log


def llama_logits(file: Path, tokens: list[int]) -> torch.Tensor:
    """Of shape (tokens, vocabulary)."""
    import llama_cpp

    with captured_log():
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_load_from_file(str(file).encode(), llama_cpp.llama_model_default_params())
        assert model, f"llama.cpp could not load {file}"
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = len(tokens)
        options.n_threads = options.n_threads_batch = torch.get_num_threads()
        options.type_k = options.type_v = 0  # float32
        options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        context = llama_cpp.llama_init_from_model(model, options)
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for position, token in enumerate(tokens):
            batch.token[position] = token
            batch.pos[position] = position
            batch.n_seq_id[position] = 1
            batch.seq_id[position][0] = 0
            batch.logits[position] = True
        try:
            assert llama_cpp.llama_decode(context, batch) == 0
            size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
            flat = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), shape=(len(tokens) * size,))
            return torch.from_numpy(flat.copy()).view(len(tokens), size)
        finally:
            llama_cpp.llama_batch_free(batch)
            llama_cpp.llama_free(context)
            llama_cpp.llama_model_free(model)
