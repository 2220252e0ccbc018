#!/usr/bin/env python3
"""Tokens and assistant masks of conversations as transformers computes them, for tests/train/data.c.

usage: tools/oracle/chat_masks.py >tests/fixtures/train/masks.json

Templates and conversations are our own. Needs transformers.
"""
import json
from pathlib import Path

from transformers import PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parents[2]
TOKENIZERS = {
    "qwen2": {"eos_token": "<|im_end|>"},
    "llama3": {"bos_token": "<s>", "eos_token": "</s>"},
    "llama2": {"bos_token": "<s>", "eos_token": "</s>"},
}
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}"
    "{{ '\n' }}{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
INSTRUCTIONS = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% generation %} {{ m.content }}{{ eos_token }}{% endgeneration %}"
    "{% else %}[INST] {{ m.content }} [/INST]{% endif %}{% endfor %}")
PLAIN = (  # tokens reach across the borders of answers
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    "A: {% generation %}{{ m.content }}{% endgeneration %}\n\n"
    "{% else %}Q: {{ m.content }}\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}A: {% endif %}")
TEMPLATES = {"chatml": (CHATML, ["qwen2"]), "instructions": (INSTRUCTIONS, ["llama3", "llama2"]),
             "plain": (PLAIN, ["qwen2", "llama3", "llama2"])}


def messages(*texts):
    return [{"role": "assistant" if i % 2 else "user", "content": text}
            for i, text in enumerate(texts)]


CONVERSATIONS = [
    messages("How many birds are there?", "There are three birds."),
    messages("Hi", "Hello, how are you?", "Fine.", "Good to hear that!", "Bye", "See you."),
    messages("Write code", "\n\nint main(void) {\n    return 0;\n}\n"),
    messages("Ünïcödé? 日本", "Ça va — 🙂 très bien", "12 + 30?", "42"),
    messages("Only a question"),
    [{"role": "system", "content": "Be kind."}] + messages("a", " b ", "c", "d  "),
]


def main():
    cases = []
    for name, (template, tokenizers) in TEMPLATES.items():
        for which in tokenizers:
            file = ROOT / f"tests/fixtures/tokenizer/{which}.json"
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file), **TOKENIZERS[which])
            for conversation in CONVERSATIONS:
                result = tokenizer.apply_chat_template(
                    conversation, chat_template=template, tokenize=True, return_dict=True,
                    return_assistant_tokens_mask=True)
                cases.append({"template": name, "tokenizer": which, "messages": conversation,
                              "ids": result["input_ids"], "mask": result["assistant_masks"]})
    templates = {name: template for name, (template, _) in TEMPLATES.items()}
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    print('{"templates": %s,\n"cases": [\n%s\n]}' % (json.dumps(templates), lines))


if __name__ == "__main__":
    main()
