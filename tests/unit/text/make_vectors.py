#!/usr/bin/env python3
"""Writes vectors.json: what Hugging Face's tokenizers and Google's sentencepiece make of small texts.

Needs the packages tokenizers and sentencepiece from PyPI; run by hand: make_vectors.py > vectors.json
"""
import base64
import json
import os
import tempfile

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

TEXTS = [
    "", " ", "  ", "\n", " \n \n x", "Hello world", " Hello,  World!!", "it's I'LL you'Re we've 'tis 'S x'\u017f",
    "1 22 333 4444 12345678", "x1y2 3.14\u00bd\u0663\u2167", "tabs\tand\r\nlines\n\n\nend  ", "na\u00efve cafe\u0301 \u212b",
    "\u6f22\u5b57\u304b\u306a \u0440\u0443\u0441\u0441\u043a\u0438\u0439 \u05e2\u05d1\u05e8\u05d9\u05ea", "\U0001f600\U0001f469\u200d\U0001f680 ok",
    "a\u00a0b\u3000c\u0085d\u180ee\u200bf", "the cat sat on the mat, and the other cats sang", "<s>the</s> <mask>cat <tool> x",
    "\u2581under\u2581score", "<0x0A><unk>", "aaaaaaaaaaaaaaaa", "   the   ", "\ufb01ne \u2460\uff21\uff22\u30ab\u3099",
]
CORPUS = [
    "the cat sat on the mat and the other cat sang to the mat",
    "hello world, hello there; it's the other one that the cats sang about",
    "numbers such as 1, 22, 333 and 1234 come and go with the other hands",
    "na\u00efve caf\u00e9 \u6f22\u5b57 and \u0440\u0443\u0441\u0441\u043a\u0438\u0439 words in a line of their own",
] * 4
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {
    "llama3": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + REST,
    "qwen2": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + REST,
}


def pre_tokenizer(name):
    if name == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    split = pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def pieces(name, text):
    raw = text.encode()
    spans = [span for _, span in pre_tokenizer(name).pre_tokenize_str(text)]
    return [text[begin:end] for begin, end in spans] if "".join(text[b:e] for b, e in spans).encode() == raw else None


def cases(tokenizer):
    out = []
    for text in TEXTS:
        for special in (False, True):
            tokenizer.encode_special_tokens = not special
            ids = tokenizer.encode(text, add_special_tokens=special).ids
            out.append({"text": text, "special": special, "ids": ids, "decoded": tokenizer.decode(ids)})
    return out


def byte_level(name):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer(name)
    tokenizer.decoder = decoders.ByteLevel()
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(vocab_size=330, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(["<s>", AddedToken("</s>", rstrip=True)])
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True), AddedToken("cat", single_word=True, normalized=False), "<tool>"])
    return {"file": json.loads(tokenizer.to_str()), "cases": cases(tokenizer)}


def metaspace(legacy):
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    trained = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=340, special_tokens=specials, show_progress=False))
    file = json.loads(trained.to_str())
    file["added_tokens"] = file["added_tokens"][:3]
    file["model"]["byte_fallback"] = True
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    mark = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    file["decoder"] = {"type": "Sequence", "decoders": [mark, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]}
    if legacy:
        file["pre_tokenizer"] = None
        replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
        file["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, replace]}
    else:
        file["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    bos = {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    file["post_processor"] = {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": bos}
    return {"file": file, "cases": cases(Tokenizer.from_str(json.dumps(file)))}


def sentence_piece(**settings):
    with tempfile.TemporaryDirectory() as folder:
        corpus = os.path.join(folder, "corpus.txt")
        with open(corpus, "w", encoding="utf-8") as file:
            file.write("\n".join(CORPUS))
        sentencepiece.SentencePieceTrainer.train(
            input=corpus, model_prefix=os.path.join(folder, "m"), model_type="bpe", minloglevel=2, **settings)
        with open(os.path.join(folder, "m.model"), "rb") as file:
            model = file.read()
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    rows = [{"text": t, "ids": processor.encode(t), "decoded": processor.decode(processor.encode(t))} for t in TEXTS]
    return {"model": base64.b64encode(model).decode(), "cases": rows}


def main():
    names = ("gpt2", "smollm", "llama3", "qwen2")
    vectors = {
        "scanners": {name: [{"text": t, "pieces": pieces(name, t)} for t in TEXTS] for name in names},
        "tokenizer_json": {name: byte_level(name) for name in names}
        | {"prepend": metaspace(True), "metaspace": metaspace(False)},
        "sentencepiece": {
            "identity": sentence_piece(vocab_size=340, byte_fallback=True, normalization_rule_name="identity"),
            "spaces": sentence_piece(vocab_size=100, normalization_rule_name="identity", remove_extra_whitespaces=False,
                                     user_defined_symbols=["<tool>", "cat", "  "]),
            "lower": sentence_piece(vocab_size=100, normalization_rule_name="identity", add_dummy_prefix=False),
        },
    }
    print(json.dumps(vectors, separators=(",", ":"), sort_keys=True))


main()
