"""A model with a chat template, small enough for every test: the weights are a fixture's; the
tokenizer is made here, one token per character."""
import json
import shutil

from command import ROOT

FIXTURE = ROOT / "tests" / "fixtures" / "models" / "smollm2"  # 97 tokens, a context of 64
SPECIAL = ["<|pad|>", "<|user|>", "<|end|>", "<|system|>", "<|assistant|>"]
TEMPLATE = ("{% for m in messages %}"
            "{% if m.role == 'user' %}<|user|>{% else %}<|system|>{% endif %}"
            "{{ m.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")


def write_model(folder, template=TEMPLATE, generation=None):
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(FIXTURE / name, folder / name)
    letters = [chr(code) for code in range(33, 127) if chr(code) not in "`~"]
    vocabulary = {piece: number for number, piece in enumerate([*SPECIAL, *letters])}
    assert len(vocabulary) == 97
    added = [{"id": number, "content": piece, "special": True, "single_word": False,
              "lstrip": False, "rstrip": False, "normalized": False}
             for number, piece in enumerate(SPECIAL)]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocabulary, "merges": []}}))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if generation is None:
        (folder / "generation_config.json").unlink(missing_ok=True)
    else:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder
