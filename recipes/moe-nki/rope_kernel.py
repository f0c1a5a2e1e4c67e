"""Rotary position embedding (rotate-half form) as an NKI kernel, forward and backward.

One source for every backend: compiled by AWS's `nki` wheel on Trainium, executed by AWS's simulator
or by the harness's interpreter elsewhere. Only documented NKI API, plain `range`, results in
`nl.shared_hbm`. Work tiles are float32 and the store casts once: torchtitan's RoPE upcasts in the
same way, while tiles of the input's dtype would be 0.03 off in bfloat16.
"""

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl

__all__ = ["rope_kernel"]


@nki.jit
def rope_kernel(q: Any, k: Any, cos: Any, sin: Any, backward: bool = False, salt: Any = None) -> Any:
    """Rotate `q` and `k`; return `(q_out, k_out)`, or `(q_out, k_out, receipt)` when `salt` is given.

    q is [batch, heads, seq, dim], k is [batch, kv_heads, seq, dim]; cos and sin are [seq, dim] or
    [batch, seq, dim] with equal halves. Each logical core takes seq / LNC rows, 128 at a time.
    `backward` applies the transposed rotation, which maps gradients of the results to gradients of
    the inputs. `salt` is a [1, 1] float32 tensor; `receipt` is [1, LNC] float32: per core, the salt
    plus the number of row tiles it stored, counted by the kernel itself.
    """
    programs = nl.num_programs(0) if nl.program_ndim() != 0 else 1
    program = nl.program_id(0) if nl.program_ndim() != 0 else 0
    batch, _, seq, dim = q.shape
    rows = nl.tile_size.pmax
    assert tuple(k.shape) == (batch, k.shape[1], seq, dim), f"q {q.shape} and k {k.shape} disagree"
    assert dim % 2 == 0, f"head dim must be even, got {dim}"
    assert seq % (rows * programs) == 0, f"seq len must be multiple of 128 * LNC={programs}, got {seq}"
    assert cos.shape == sin.shape, f"cos {cos.shape} and sin {sin.shape} disagree"
    assert tuple(cos.shape[-2:]) == (seq, dim), f"cos/sin {cos.shape} do not cover seq {seq}, dim {dim}"

    q_out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    k_out = nl.ndarray(k.shape, dtype=k.dtype, buffer=nl.shared_hbm)
    if salt is not None:
        receipt = nl.ndarray((1, programs), dtype=nl.float32, buffer=nl.shared_hbm)
        tally = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
        one = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tally, src=salt)
        nisa.memset(dst=one, value=1.0)

    for b in range(batch):
        for t in range(seq // rows // programs):
            here = nl.ds(program * (seq // programs) + t * rows, rows)
            c = nl.ndarray((rows, dim), dtype=nl.float32, buffer=nl.sbuf)
            s = nl.ndarray((rows, dim), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=c, src=cos[b, here, :] if len(cos.shape) == 3 else cos[here, :])
            nisa.dma_copy(dst=s, src=sin[b, here, :] if len(sin.shape) == 3 else sin[here, :])
            for h in range(q.shape[1]):
                _rotate(q_out[b, h, here, :], q[b, h, here, :], c, s, backward)
            for h in range(k.shape[1]):
                _rotate(k_out[b, h, here, :], k[b, h, here, :], c, s, backward)
            if salt is not None:
                nisa.tensor_tensor(dst=tally, data1=tally, data2=one, op=nl.add)

    if salt is not None:
        nisa.dma_copy(dst=receipt[0:1, program : program + 1], src=tally)
        return q_out, k_out, receipt
    return q_out, k_out


def _rotate(dst: Any, src: Any, c: Any, s: Any, backward: bool) -> None:
    """Rotate one [128, dim] tile: `dst = src * c + rotate_half(src) * s`, or its transpose."""
    rows, dim = src.shape
    half = dim // 2
    x = nl.ndarray((rows, dim), dtype=nl.float32, buffer=nl.sbuf)
    y = nl.ndarray((rows, dim), dtype=nl.float32, buffer=nl.sbuf)
    u = nl.ndarray((rows, half), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=src)
    nisa.tensor_tensor(dst=y, data1=x, data2=c, op=nl.multiply)
    # Forward: y_lo -= x_hi * s_lo and y_hi += x_lo * s_hi. Transposed: the sine belongs to the row the value came from.
    s_lo = s[:, half:] if backward else s[:, :half]
    s_hi = s[:, :half] if backward else s[:, half:]
    nisa.tensor_tensor(dst=u, data1=x[:, half:], data2=s_lo, op=nl.multiply)
    nisa.tensor_tensor(dst=y[:, :half], data1=y[:, :half], data2=u, op=nl.add if backward else nl.subtract)
    nisa.tensor_tensor(dst=u, data1=x[:, :half], data2=s_hi, op=nl.multiply)
    nisa.tensor_tensor(dst=y[:, half:], data1=y[:, half:], data2=u, op=nl.subtract if backward else nl.add)
    nisa.dma_copy(dst=dst, src=y)
