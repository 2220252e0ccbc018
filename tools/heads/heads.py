"""The draft heads, as docs/heads.md defines them: Medusa heads, the EAGLE-3-style layers and the
distilled draft.

All predict over the `frequent` tokens alone, with the base model's own head rows. Forward passes
here take whole texts, so that all positions are trained or measured at once.
"""
import torch
from torch import nn
from torch.nn import functional

from base import Rope, rms_norm

MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
NORMS = ("attn_norm", "ffn_norm")
POSITIONS = 2048


def linear(rows, columns, gain=1.0):
    return nn.Parameter(torch.randn(rows, columns) * gain / columns ** 0.5)


class Medusa(nn.Module):
    """Head k drafts the token k + 1 behind a position from its hidden state and the next token."""

    def __init__(self, base, count=4, with_token=True):
        super().__init__()
        self.count = count
        self.rounded = None
        width = base.width
        self.state = nn.ParameterList(nn.Parameter(torch.zeros(width, width))
                                      for _ in range(count))
        self.token = nn.ParameterList(linear(width, width, 0.02)
                                      for _ in range(count if with_token else 0))

    def forward(self, k, normed, embedded):
        """normed: hidden states behind the final norm; embedded: normed embedding of the token
        that follows each of them. Returns what the head's rows are multiplied with."""
        inner = functional.linear(normed, live(self, self.state[k]))
        if len(self.token) > 0:
            inner = inner + functional.linear(embedded, live(self, self.token[k]))
        return normed + functional.silu(inner)

    def tensors(self):
        named = {}
        for k in range(self.count):
            named[f"medusa.{k}.state.weight"] = self.state[k]
            if len(self.token) > 0:
                named[f"medusa.{k}.token.weight"] = self.token[k]
        return named


def live(module, weight):
    """The weight as the module computes with it: `rounded` is None or a function that rounds to
    the values that a file can hold (training towards 4 bits)."""
    return weight if module.rounded is None else module.rounded(weight)


class Layer(nn.Module):
    """The weights of one Llama layer of the base model's sizes."""

    def __init__(self, base, copied=None, damping=1.0):
        """copied: weights of a layer of the base model, or None for random ones."""
        super().__init__()
        width, q_width = base.width, base.heads * base.head_size
        kv_width = base.kv_heads * base.head_size
        shapes = {"attn_q": (q_width, width), "attn_k": (kv_width, width),
                  "attn_v": (kv_width, width), "attn_output": (width, q_width),
                  "ffn_gate": (base.feed_forward, width), "ffn_up": (base.feed_forward, width),
                  "ffn_down": (width, base.feed_forward)}
        for name, shape in shapes.items():
            value = linear(*shape) if copied is None else clone(copied[name])
            if name in ("attn_output", "ffn_down"):
                value.data.mul_(damping)
            setattr(self, name, value)
        for name in NORMS:
            setattr(self, name, nn.Parameter(torch.ones(width)) if copied is None
                    else clone(copied[name]))

    def tensors(self, prefix):
        return {f"{prefix}.{name}.weight": getattr(self, name) for name in MATRICES + NORMS}


def clone(value):
    return nn.Parameter(value.detach().float().cpu().clone())


def rotate(x, cos, sin):
    """As Rope does. x: [..., rows, heads, head_size]; cos, sin: [rows, head_size]."""
    first, second = x.chunk(2, dim=-1)
    turned = x * cos.unsqueeze(-2) + torch.cat([-second, first], dim=-1) * sin.unsqueeze(-2)
    return turned.to(x.dtype)


def layer_qkv(x, cos, sin, norm, q_weight, k_weight, v_weight, head_size, epsilon):
    y = rms_norm(x, norm, epsilon)
    q, k, v = (functional.linear(y, weight).unflatten(-1, (-1, head_size))
               for weight in (q_weight, k_weight, v_weight))
    return rotate(q, cos, sin), rotate(k, cos, sin), v


def layer_behind(x, attended, output, norm, gate, up, down, epsilon):
    x = x + functional.linear(attended, output)
    y = rms_norm(x, norm, epsilon)
    y = functional.silu(functional.linear(y, gate)) * functional.linear(y, up)
    return x + functional.linear(y, down)


class Stack(nn.Module):
    """Layers that run over rows with sliding-window attention."""

    functions = {"qkv": layer_qkv, "behind": layer_behind}  # training may compile them

    def __init__(self, base, window):
        super().__init__()
        self.heads, self.kv_heads, self.head_size = base.heads, base.kv_heads, base.head_size
        self.width, self.feed_forward = base.width, base.feed_forward
        self.epsilon, self.rope_base, self.window = base.epsilon, base.rope_base, window
        self.layers = nn.ModuleList()
        self.output_norm = clone(base.norm)
        self.rounded = None
        self.rope = None

    def live_layers(self):
        """The weights of every layer; taken once for all steps of a pass."""
        return [{**{name: live(self, getattr(layer, name)) for name in MATRICES},
                 **{name: getattr(layer, name) for name in NORMS}} for layer in self.layers]

    def qkv(self, w, x, positions):
        if self.rope is None:
            self.rope = Rope(self.head_size, self.rope_base, POSITIONS, x.device, torch.float32)
        return Stack.functions["qkv"](x, self.rope.cos[positions], self.rope.sin[positions],
                                      w["attn_norm"], w["attn_q"], w["attn_k"], w["attn_v"],
                                      self.head_size, self.epsilon)

    def behind_attention(self, w, x, attended):
        return Stack.functions["behind"](x, attended, w["attn_output"], w["ffn_norm"],
                                         w["ffn_gate"], w["ffn_up"], w["ffn_down"], self.epsilon)

    def attend(self, q, keys, values, mask):
        """q: [batch, rows, heads, head_size]; keys and values: lists of [batch, rows, kv heads,
        head_size], joined along the rows; mask: [batch or 1, 1, rows, all rows of keys]."""
        group = self.heads // self.kv_heads
        k, v = (torch.cat(parts, dim=1).transpose(1, 2).repeat_interleave(group, dim=1)
                for parts in (keys, values))
        mask = mask.expand(q.shape[0], self.heads, -1, -1)
        attended = functional.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=mask)
        return attended.transpose(1, 2).flatten(-2)

    def masks(self, rows, steps, cut, like):
        """What is added to the scores of each step, 0 or −∞: visible are rows of true states that
        are `step` or more rows back, and one row of each later step. Rows in front of `cut` (one
        number for each text, or None) are hidden."""
        row = torch.arange(rows, device=like.device)
        back = row[:, None] - row[None, :]
        inside = back < self.window if self.window > 0 else torch.ones_like(back, dtype=torch.bool)
        kept = None if cut is None else (row[None, :] >= cut[:, None])[:, None, :]
        found = []
        for step in range(steps):
            true_rows = ((back >= step) & inside)[None]
            if kept is not None:
                # A row always sees itself, so that no row sees nothing.
                true_rows = true_rows & (kept | (back == 0)[None])
            blocks = [true_rows] + [(back == step - m)[None].expand_as(true_rows)
                                    for m in range(1, step + 1)]
            visible = torch.cat(blocks, dim=-1)[:, None]
            found.append(torch.zeros(visible.shape, device=like.device, dtype=like.dtype)
                         .masked_fill(~visible, float("-inf")))
        return found


class Eagle(Stack):
    """Llama layers behind a projection of (state, embedding of the next token)."""

    def __init__(self, base, taps, depth=1, window=0, start_from=None):
        """taps: layers, ascending; the last one is base.layers. start_from: layers to copy, one for
        each of depth, or None."""
        super().__init__(base, window)
        self.taps, self.depth = tuple(taps), depth
        width, count = base.width, len(taps)
        self.tap_norm = nn.Parameter(torch.ones(count, width))
        self.fuse = nn.Parameter(torch.cat(
            [torch.zeros(width, (count - 1) * width), torch.eye(width)], dim=1))
        self.state_norm = nn.Parameter(torch.ones(width))
        self.token_norm = nn.Parameter(torch.ones(width))
        self.input = nn.Parameter(torch.cat([torch.eye(width), torch.zeros(width, width)], dim=1)
                                  + torch.randn(width, 2 * width) * 0.02)
        for index in range(depth):
            # The input has RMS 1 here; the copied layer saw its own residual stream. So its
            # outputs are damped.
            copied = None if start_from is None else base.layer(start_from[index])
            self.layers.append(Layer(base, copied, 1.0 if copied is None else 0.05))

    def first_state(self, taps):
        """taps: [..., tap, width] to the state that the first step takes."""
        normed = rms_norm(taps, self.tap_norm, self.epsilon)
        return functional.linear(normed.flatten(-2), live(self, self.fuse))

    def project(self, state, embedded, weight):
        """state and raw embedding of the token behind it to the first layer's input."""
        both = torch.cat([rms_norm(state, self.state_norm, self.epsilon),
                          rms_norm(embedded, self.token_norm, self.epsilon)], dim=-1)
        return functional.linear(both, weight)

    def forward(self, taps, embedded, steps, cut=None):
        """taps: [batch, rows, tap, width] of positions 0…rows − 1; embedded: [batch, rows, width]
        of tokens 1…rows. Returns for each step the normed output [batch, rows, width]: row i
        drafts token i + 2. In step s (from 0) it is draft s of a chain that began at row i − s,
        so rows i < s mean nothing. Drafts in front of it are taken to be accepted. cut: first row
        of each text that the layers have been fed."""
        rows = embedded.shape[1]
        positions = torch.arange(rows, device=embedded.device)
        masks = self.masks(rows, steps, cut, embedded)
        weights, input_weight = self.live_layers(), live(self, self.input)
        keys, values = [[] for _ in weights], [[] for _ in weights]
        state, outputs = self.first_state(taps), []
        for step in range(steps):
            x = self.project(state, embedded, input_weight)
            for index, w in enumerate(weights):
                q, k, v = self.qkv(w, x, positions)
                keys[index].append(k), values[index].append(v)
                x = self.behind_attention(w, x, self.attend(q, keys[index], values[index],
                                                            masks[step]))
            outputs.append(rms_norm(x, self.output_norm, self.epsilon))
            state = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)
        return outputs

    def tensors(self):
        named = {}
        for index, layer in enumerate(self.layers):
            named.update(layer.tensors(f"eagle.layer.{index}"))
        for name in ("tap_norm", "fuse", "state_norm", "token_norm", "input", "output_norm"):
            named[f"eagle.{name}.weight"] = getattr(self, name)
        return named


class Draft(Stack):
    """A small Llama between the base model's embedding and its output matrix."""

    def __init__(self, base, depth, window=0, start_from=None):
        """start_from: layers of the base to copy, or None for random ones."""
        super().__init__(base, window)
        self.depth = depth
        for index in range(depth):
            self.layers.append(Layer(base, None if start_from is None
                                     else base.layer(start_from[index])))

    def forward(self, embedded, cut=None):
        """embedded: [batch, rows, width] of tokens 0…rows − 1. Returns the normed output, whose
        row i drafts token i + 1."""
        rows = embedded.shape[1]
        positions = torch.arange(rows, device=embedded.device)
        mask, = self.masks(rows, 1, cut, embedded)
        x = embedded
        for w in self.live_layers():
            q, k, v = self.qkv(w, x, positions)
            x = self.behind_attention(w, x, self.attend(q, [k], [v], mask))
        return rms_norm(x, self.output_norm, self.epsilon)

    def tensors(self):
        named = {"output_norm.weight": self.output_norm}
        for index, layer in enumerate(self.layers):
            named.update(layer.tensors(f"layers.{index}"))
        return named
