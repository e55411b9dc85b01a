"""An optimizer for programs that start with nothing imported: the first of PyTorch's own imports its compiler."""

from __future__ import annotations

#: of the script's own, behind its import of PyTorch; it is called like the one whose place it takes
SGD = """
class SGD(torch.optim.Optimizer):
    def __init__(self, parameters, lr=0.1):
        super().__init__(parameters, {"lr": lr})
    # those of the class above are what imports it
    def add_param_group(self, group):
        self.param_groups.append(group)
    def zero_grad(self):
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None
    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            parameter -= self.defaults["lr"] * parameter.grad
"""
