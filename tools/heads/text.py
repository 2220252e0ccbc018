"""SmolLM2's tokenizer and chat template, from the GGUF's own vocabulary and merges."""
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import AddedToken, decoders, models, pre_tokenizers

END = 2  # <|im_end|>
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
QUESTION = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
ANSWER = "\n<|im_start|>assistant\n"  # behind the question's own <|im_end|>
CONTROL = 3  # token type in GGUF


class Tokenizer:
    def __init__(self, metadata):
        tokens = metadata["tokenizer.ggml.tokens"]
        merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
        vocabulary = {token: index for index, token in enumerate(tokens)}
        self.inner = HfTokenizer(models.BPE(vocabulary, merges))
        self.inner.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False)])
        self.inner.decoder = decoders.ByteLevel()
        types = metadata["tokenizer.ggml.token_type"]
        self.inner.add_special_tokens([AddedToken(token, special=True, normalized=False)
                                       for token, kind in zip(tokens, types) if kind == CONTROL])

    def encode(self, text):
        return self.inner.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.inner.decode(ids, skip_special_tokens=False)
