"""Haar semi-orthogonal matrices of sizes other than the source's own."""

from __future__ import annotations

from ._source import Array, Source


def haar(source: Source, rows: int, columns: int) -> Array:
    """`source.count` Haar semi-orthogonal matrices of shape (rows, columns), by QR."""
    xp = source.xp
    normals = source.normals(rows, columns)
    q, r = xp.linalg.qr(normals if rows > columns else normals.mT)
    diagonal = xp.diagonal(r, 0, -2, -1)
    tall = q * xp.where(diagonal < 0, -1.0, 1.0)[..., None, :]
    return tall if rows > columns else tall.mT
