"""Muon for matrices (orthogonalised momentum, Jordan et al. 2024), Adam for vectors."""
import torch

STEPS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonal(x):
    """The matrices x [count, rows, columns] with all singular values near 1 (Newton–Schulz)."""
    a, b, c = COEFFICIENTS
    kind = torch.bfloat16 if x.is_cuda else torch.float32
    tall = x.shape[1] > x.shape[2]
    y = x.transpose(1, 2) if tall else x
    y = (y / (y.norm(dim=(1, 2), keepdim=True) + 1e-9)).to(kind)
    for _ in range(STEPS):
        square = y @ y.transpose(1, 2)
        y = a * y + (b * square + c * square @ square) @ y
    return (y.transpose(1, 2) if tall else y).float()


class Muon:
    """Matrices of one shape are updated together, whichever model they belong to."""

    def __init__(self, matrices, rate, momentum=0.95):
        self.rate, self.momentum, self.groups = rate, momentum, {}
        for matrix in matrices:
            self.groups.setdefault(tuple(matrix.shape), []).append(matrix)
        self.average = {shape: torch.zeros(len(group), *shape, device=group[0].device)
                        for shape, group in self.groups.items()}

    @torch.no_grad()
    def step(self, factor):
        for shape, group in self.groups.items():
            gradient = torch.stack([matrix.grad for matrix in group])
            average = self.average[shape]
            average.lerp_(gradient, 1 - self.momentum)
            update = orthogonal(gradient.lerp(average, self.momentum))
            scale = self.rate * factor * max(1.0, shape[0] / shape[1]) ** 0.5
            torch._foreach_add_(group, list(update.unbind(0)), alpha=-scale)


class Optimiser:
    def __init__(self, modules, muon_rate, adam_rate, muon=True):
        parameters = [p for module in modules for p in module.parameters()]
        names = {id(p) for module in modules for name, p in module.named_parameters()
                 if p.ndim < 2 or name.endswith("norm")}
        matrices = [p for p in parameters if id(p) not in names]
        self.parameters = parameters
        self.muon = Muon(matrices, muon_rate) if muon else None
        self.adam_rate = adam_rate
        rest = [p for p in parameters if id(p) in names] if muon else parameters
        self.adam = torch.optim.AdamW(rest, lr=adam_rate, betas=(0.9, 0.95),
                                      weight_decay=0.0) if rest else None

    def step(self, factor):
        """factor: of the rates, 0…1."""
        if self.muon is None:
            torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        else:
            self.muon.step(factor)
        if self.adam is not None:
            for group in self.adam.param_groups:
                group["lr"] = self.adam_rate * factor
            self.adam.step()
        for parameter in self.parameters:
            parameter.grad = None
