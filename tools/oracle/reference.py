"""Logits as transformers computes them: eager attention, every position."""
import numpy
import torch
import transformers as hf

torch.set_grad_enabled(False)
hf.logging.set_verbosity_error()
hf.logging.disable_progress_bar()


def load(folder, kind=torch.float32):
    model = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=kind, attn_implementation="eager")
    return model.eval()


def logits(model, ids, stepwise=False):
    """[positions][vocabulary]. Stepwise: token by token with a cache, so that a position never
    depends on how long the sequence becomes (dynamic NTK)."""
    tokens = torch.tensor(numpy.asarray(ids), dtype=torch.long)[None]
    if not stepwise:
        return model(tokens, use_cache=False).logits[0].numpy()
    cache, rows = None, []
    for position in range(tokens.shape[1]):
        out = model(tokens[:, position:position + 1], past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        rows.append(out.logits[0, 0].numpy())
    return numpy.stack(rows)


def difference(a, b):
    """Largest difference as a part of the range of `b`."""
    b = b.astype(numpy.float64)
    return float(numpy.abs(a - b).max() / (b.max() - b.min()))
