"""The two draft heads, as docs/heads.md defines them: Medusa heads and one EAGLE-3-style layer.

Both predict over the `frequent` tokens alone, with the base model's own head rows. Forward passes
here take whole texts, so that all positions are trained or measured at once.
"""
import torch
from torch import nn
from torch.nn import functional

from base import Rope, rms_norm


def linear(rows, columns, gain=1.0):
    return nn.Parameter(torch.randn(rows, columns) * gain / columns ** 0.5)


class Medusa(nn.Module):
    """Head k drafts the token k + 1 behind a position from its hidden state and the next token."""

    def __init__(self, base, count=4, with_token=True):
        super().__init__()
        self.count = count
        width = base.width
        self.state = nn.ParameterList(nn.Parameter(torch.zeros(width, width))
                                      for _ in range(count))
        self.token = nn.ParameterList(linear(width, width, 0.02)
                                      for _ in range(count if with_token else 0))

    def forward(self, k, normed, embedded):
        """normed: hidden states behind the final norm; embedded: normed embedding of the token
        that follows each of them. Returns what the head's rows are multiplied with."""
        inner = functional.linear(normed, self.state[k])
        if len(self.token) > 0:
            inner = inner + functional.linear(embedded, self.token[k])
        return normed + functional.silu(inner)

    def tensors(self):
        named = {}
        for k in range(self.count):
            named[f"medusa.{k}.state.weight"] = self.state[k]
            if len(self.token) > 0:
                named[f"medusa.{k}.token.weight"] = self.token[k]
        return named


class Eagle(nn.Module):
    """One Llama layer behind a projection of (state, embedding of the next token)."""

    MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")

    def __init__(self, base, taps, start_from=None):
        """taps: layers, ascending; the last one is base.layers. start_from: layer to copy."""
        super().__init__()
        self.heads, self.kv_heads, self.head_size = base.heads, base.kv_heads, base.head_size
        self.epsilon, self.taps = base.epsilon, tuple(taps)
        width, count = base.width, len(taps)
        self.tap_norm = nn.Parameter(torch.ones(count, width))
        self.fuse = nn.Parameter(torch.cat(
            [torch.zeros(width, (count - 1) * width), torch.eye(width)], dim=1))
        self.state_norm = nn.Parameter(torch.ones(width))
        self.token_norm = nn.Parameter(torch.ones(width))
        self.input = nn.Parameter(torch.cat([torch.eye(width), torch.zeros(width, width)], dim=1)
                                  + torch.randn(width, 2 * width) * 0.02)
        self.attn_norm, self.ffn_norm = nn.Parameter(torch.ones(width)), nn.Parameter(
            torch.ones(width))
        self.output_norm = nn.Parameter(base.norm.detach().float().clone().cpu())
        kv_width = self.kv_heads * self.head_size
        q_width = self.heads * self.head_size
        shapes = {"attn_q": (q_width, width), "attn_k": (kv_width, width),
                  "attn_v": (kv_width, width), "attn_output": (width, q_width),
                  "ffn_gate": (base.feed_forward, width), "ffn_up": (base.feed_forward, width),
                  "ffn_down": (width, base.feed_forward)}
        copied = base.layer(start_from) if start_from is not None else {}
        for name, shape in shapes.items():
            value = copied[name].detach().float().cpu().clone() if copied else None
            setattr(self, name, nn.Parameter(value) if copied else linear(*shape))
        if copied:
            # The input is normed to RMS 1 here; the copied layer saw its own residual stream.
            self.attn_norm.data.copy_(copied["attn_norm"])
            self.ffn_norm.data.copy_(copied["ffn_norm"])
            for name in ("attn_output", "ffn_down"):
                getattr(self, name).data.mul_(0.05)
        self.rope_base = base.rope_base
        self.rope = None

    def first_state(self, taps):
        """taps: [..., tap, width] to the state that the first step takes."""
        normed = rms_norm(taps, self.tap_norm, self.epsilon)
        return functional.linear(normed.flatten(-2), self.fuse)

    def project(self, state, embedded):
        """state and raw embedding of the token behind it to the layer's input."""
        both = torch.cat([rms_norm(state, self.state_norm, self.epsilon),
                          rms_norm(embedded, self.token_norm, self.epsilon)], dim=-1)
        return functional.linear(both, self.input)

    def qkv(self, x, positions):
        y = rms_norm(x, self.attn_norm, self.epsilon)
        q, k, v = (functional.linear(y, weight).unflatten(-1, (-1, self.head_size))
                   for weight in (self.attn_q, self.attn_k, self.attn_v))
        if self.rope is None or self.rope.cos.shape[0] < positions[-1] + 1:
            self.rope = Rope(self.head_size, self.rope_base, 2048, x.device, torch.float32)
        return self.rope(q.float(), positions), self.rope(k.float(), positions), v.float()

    def feed_forward(self, x, attended):
        x = x + functional.linear(attended, self.attn_output)
        y = rms_norm(x, self.ffn_norm, self.epsilon)
        y = functional.silu(functional.linear(y, self.ffn_gate)) * functional.linear(
            y, self.ffn_up)
        return x + functional.linear(y, self.ffn_down)

    def forward(self, taps, embedded, steps):
        """taps: [batch, rows, tap, width] of positions 0…rows − 1; embedded: [batch, rows, width]
        of tokens 1…rows. Returns for each step the normed output [batch, rows, width]: row i
        drafts token i + 2. In step s it is the s-th draft of a chain that began at row i − s + 1,
        so rows i < s − 1 mean nothing. Drafts in front of it are taken to be accepted."""
        batch, rows, width = embedded.shape
        positions = torch.arange(rows, device=embedded.device)
        group = self.heads // self.kv_heads
        scale = self.head_size ** -0.5
        keys, values, outputs = [], [], []
        state = self.first_state(taps)
        for step in range(steps):
            x = self.project(state, embedded)
            q, k, v = self.qkv(x, positions)
            k, v = k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)
            keys.append(k), values.append(v)
            # Rows of true states up to `step` rows back, then one row of each later step.
            scores = torch.einsum("bihd,bjhd->bhij", q, keys[0]) * scale
            hidden = positions[None, :] > positions[:, None] - step
            scores = scores.masked_fill(hidden & (positions[None, :] > 0), -1e9)
            later = [shift_down(keys[m], step - m) for m in range(1, step + 1)]
            columns = [(q * key).sum(-1).transpose(1, 2).unsqueeze(-1) * scale for key in later]
            weights = torch.cat([scores, *columns], dim=-1).softmax(-1)
            attended = torch.einsum("bhij,bjhd->bihd", weights[..., :rows], values[0])
            for m in range(1, step + 1):
                attended = attended + weights[..., rows + m - 1].transpose(1, 2).unsqueeze(
                    -1) * shift_down(values[m], step - m)
            y = self.feed_forward(x, attended.flatten(-2).to(x.dtype))
            outputs.append(rms_norm(y, self.output_norm, self.epsilon))
            state = shift_down(y, 1)
        return outputs

    def tensors(self):
        named = {f"eagle.layer.{name}.weight": getattr(self, name) for name in self.MATRICES}
        for name in ("tap_norm", "fuse", "state_norm", "token_norm", "input", "output_norm"):
            named[f"eagle.{name}.weight"] = getattr(self, name)
        for name in ("attn_norm", "ffn_norm"):
            named[f"eagle.layer.{name}.weight"] = getattr(self, name)
        return named


def shift_down(x, count):
    """x[:, i] moves to row i + count; zeros come in at the top."""
    if count == 0:
        return x
    return torch.cat([torch.zeros_like(x[:, :count]), x[:, :-count]], dim=1)
