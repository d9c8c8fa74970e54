"""A small tokenizer in the form that SentencePiece's take in `tokenizers`."""

from __future__ import annotations

import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from laaciq import reference

SPECIAL = ["<unk>", "<s>", "</s>"]


def sentencepiece_tokenizer(*, prefix: bool = True) -> PreTrainedTokenizerFast:
    """Every pair that makes a token is listed, best token first. With `prefix`, a space comes before a text, as in Llama 2; not so in Gemma."""
    marking = [normalizers.Replace(" ", "▁")]
    trained = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    trained.normalizer = normalizers.Sequence(marking)
    trained.pre_tokenizer = pre_tokenizers.Split(Regex("▁"), "merged_with_next")
    numbered = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=[*SPECIAL, *numbered], limit_alphabet=150, show_progress=False
    )
    texts = reference.texts_path() / "calibration"
    trained.train([str(texts / f"{language}.txt") for language in ("eng", "swa", "rus", "hin")], trainer)
    vocabulary = json.loads(trained.to_str())["model"]["vocab"]
    wholes = [
        token for token in sorted(vocabulary, key=vocabulary.get) if token not in SPECIAL and token not in numbered
    ]
    cuts = [(whole[:cut], whole[cut:]) for whole in wholes for cut in range(1, len(whole))]
    merges = [pair for pair in cuts if pair[0] in vocabulary and pair[1] in vocabulary]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), *marking] if prefix else marking)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
