"""A first look: draw a member of the set, check it, and send a signal through 100 ReLU layers under each scheme."""

from __future__ import annotations

import torch

from stiefel_init import check
from stiefel_init.torch import SCHEMES, stiefel_

DEPTH, WIDTH, INPUTS = 100, 64, 784


def main() -> None:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)  # some schemes shrink the signal below what float32 can square
    print("Draw one weight matrix and check it:")
    print("  stiefel_   ", check(stiefel_(torch.empty(WIDTH, INPUTS))))
    print("  orthogonal_", check(torch.nn.init.orthogonal_(torch.empty(WIDTH, INPUTS))))

    print(f"\nThe same images through {DEPTH} ReLU layers of width {WIDTH}, at initialization:")
    print(f"  {'scheme':<12}{'size of the signal':>20}{'units that fire':>18}{'dead units':>13}{'gradient':>12}")
    images = torch.rand(256, INPUTS) * (torch.rand(256, INPUTS) < 0.2)  # a fifth of the pixels lit, like a digit
    for name, scheme in SCHEMES.items():
        layers = [torch.nn.Linear(INPUTS, WIDTH)] + [torch.nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH - 1)]
        x = images
        for layer in layers:
            scheme(layer.weight)
            torch.nn.init.zeros_(layer.bias)
            x = torch.relu(layer(x))
        x.square().sum().sqrt().backward()
        first, last = layers[0].weight.grad.norm(), layers[-1].weight.grad.norm()
        signal = x.norm() / images.norm()
        gradient = f"{first / last:.1e}" if last > 0 else "none"
        fires, dead = (x > 0).float().mean(), (x == 0).all(0).float().mean()
        print(f"  {name:<12}{signal:>20.1e}{fires:>18.0%}{dead:>13.0%}{gradient:>12}")
    print("\nSignal: length of the last activations over that of the input. Gradient: first layer's over the last's.")


if __name__ == "__main__":
    main()
