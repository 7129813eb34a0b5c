"""The study of streams: the mixers are what they say, to float32, and the networks with them learn."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from paper.experiment import Options
from paper.results import Results
from paper.studies import streams
from paper.studies.continual import SIDE, Images
from paper.studies.streams import APART, MIXERS, STREAMS, Networks, Streams, hull, member, sinkhorn
from scipy.spatial.transform import Rotation

from stiefel_init import check

MOST = 1e-6
ONES = torch.ones(STREAMS, dtype=torch.float64)


def parameters(size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(4096, size, generator=torch.Generator().manual_seed(seed))


def test_a_mixer_of_a_quaternion_is_a_member_of_the_set_to_a_millionth_and_agrees_with_float64() -> None:
    q = parameters(4)
    found = member(q).double()
    turns = torch.from_numpy(Rotation.from_quat(q.double().numpy(), scalar_first=True).as_matrix())
    half = streams.SIGNS.double() / 2
    torch.testing.assert_close(half.mT @ half, torch.eye(3, dtype=torch.float64))
    exact = 0.25 + half @ turns @ half.mT
    assert (found - exact).abs().max() < MOST
    assert (found @ ONES - 1).abs().max() < MOST
    assert (ONES @ found - 1).abs().max() < MOST
    assert torch.linalg.matrix_norm(found.mT @ found - torch.eye(STREAMS, dtype=torch.float64)).max() < 4 * MOST
    assert check(member(q[0].double()))


def test_the_hull_keeps_the_mean_and_lengthens_nothing() -> None:
    found = hull(parameters(11)).double()
    assert (found @ ONES - 1).abs().max() < MOST
    assert (ONES @ found - 1).abs().max() < MOST
    sizes = torch.linalg.svdvals(found)
    assert sizes.max() < 1 + MOST
    assert sizes[:, -1].median() < 0.6  # they are not all members
    q = torch.cat([parameters(8), torch.full((4096, 3), 20.0)], 1)
    assert torch.linalg.svdvals(hull(q).double()).min() > 1 - MOST


def test_twenty_iterations_of_sinkhorn_leave_a_mean_that_leaks() -> None:
    sums = (ONES @ sinkhorn(3 * parameters(16).unflatten(-1, (4, 4))).double()).sub(1).abs().max()
    rows = sinkhorn(3 * parameters(16).unflatten(-1, (4, 4))).double().sum(-1).sub(1).abs().max()
    assert sums < MOST < rows


@pytest.mark.parametrize("mixer", MIXERS)
def test_streams_pass_the_blocks_as_written_one_by_one(mixer: str) -> None:
    networks = Networks(mixer, "copies" if mixer == "none" else APART, 3, [0, 1])
    x = torch.rand(2, 5, SIDE**2)
    mixed = networks.mixers()
    for one in range(2):
        embedding, reads, writes, inner, outer = networks.p[0][one], *(p[:, one] for p in networks.p[2:6])
        held = (x[one] @ embedding).view(5, networks.count, -1)
        for at in range(3):
            u = torch.einsum("s,tsw->tw", reads[at, 0], held)
            u = u / u.square().mean(-1, keepdim=True).add(1e-6).sqrt()
            y = (u @ inner[at]).relu() @ outer[at]
            held = held if mixed is None else torch.einsum("rs,tsw->trw", mixed[at, one], held)
            held = held + writes[at, :, 0, None] * y[:, None]
        last = networks.streams(x)[-1][one].view(networks.count, 5, -1).transpose(0, 1)
        torch.testing.assert_close(last, held)


def test_a_run_is_resumed_and_its_page_compares_every_mixer_with_the_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.rand(62_000, SIDE**2, generator=torch.Generator().manual_seed(0))
    images = Images(x, (x[:, 0] > 0.5).long())
    monkeypatch.setattr(Images, "of", lambda name, directory: images)
    monkeypatch.setattr(streams, "STEPS", 12)
    Streams().run(Options(tmp_path, quick=True))
    (tmp_path / "streams.csv").write_text((tmp_path / "streams-quick.csv").read_text())
    (tmp_path / "streams-mixers.csv").write_text((tmp_path / "streams-quick-mixers.csv").read_text())
    evidence = Streams().evidence(Results(tmp_path))
    text = " ".join(Streams().section(evidence))
    assert all(f"**{mixer}** against no mixing" in text for mixer in MIXERS if mixer not in ("none", "identity"))
    leaks = {row["mixer"]: row["leak"] for row in evidence[0]}
    assert leaks["in the set"] < 1e-5 < leaks["free"]
    monkeypatch.setattr(streams, "train", None)
    Streams().run(Options(tmp_path, quick=True))
