"""What looks like a fault and is none: setups of which nothing of the kind may be said."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stiefel_init.torch import diagnose


def test_an_activation_that_is_only_compared_is_read() -> None:
    """Actions that are drawn by what a sigmoid says, whose gradient goes through the scores."""

    def loss(scores: Tensor, y: Tensor) -> Tensor:
        action = (torch.rand_like(scores) < scores.sigmoid()).float()
        return (F.binary_cross_entropy_with_logits(scores, action, reduction="none") * (action == y)).mean()

    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    found = diagnose(model, torch.randn(64, 4), torch.randint(2, (64, 3)).float(), loss=loss)
    assert not [each for each in (*found.findings, *found.warnings) if "thrown away" in each.kind]


def test_pairs_of_a_loss_that_compares_them_on_purpose_are_no_mistake() -> None:
    def triplets(o: Tensor, y: Tensor) -> Tensor:
        distances, same = (o[:, None] - o[None]).square().sum(2), y[:, None] == y[None]
        return ((distances * same).amax(1) - distances.masked_fill(same, torch.inf).amin(1) + 1).relu().mean()

    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
    found = diagnose(model, torch.randn(64, 4), torch.randint(4, (64,)), loss=triplets)
    assert not [each for each in (*found.findings, *found.warnings) if "broadcast" in each.kind]


def test_a_model_that_draws_its_outputs_need_not_learn_a_batch_by_heart() -> None:
    """What a code of two numbers with noise says of sixteen; the mean of the targets is the best of it."""

    class Coder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.Linear(16, 2), nn.Linear(2, 16)

        def forward(self, x: Tensor) -> Tensor:
            return self.decoder(self.encoder(x).tanh() + 2 * torch.randn(len(x), 2))

    torch.manual_seed(0)
    x, model = torch.randn(64, 16), Coder()
    found = diagnose(model, x, x, loss=F.mse_loss, optimizer=torch.optim.Adam(model.parameters(), 1e-3))
    assert "batch is not learned" not in {each.kind for each in (*found.findings, *found.warnings)}
