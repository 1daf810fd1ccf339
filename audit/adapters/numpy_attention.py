# SPDX-License-Identifier: Apache-2.0
"""Attention of the whole contract in plain numpy, without gradients: an example of an adapter.

f64 tensors are computed in f64, all others in f32 and rounded once, in the outputs.
"""
import numpy as np

import attest_adapter

INFO = {
    "name": "numpy attention", "version": np.__version__,
    "supports": {
        "dtypes": ["f64", "f32", "bf16", "f16"], "scores": ["dot", "general", "additive"],
        "masks": ["boolean", "bias", "causal_top_left", "causal_bottom_right", "window", "kv_lengths",
                  "q_lengths", "documents", "local"],
        "features": ["gqa", "alibi", "softcap", "sinks", "dropout", "explicit_scale", "v_dim",
                     "out_dtype", "grad_lse"],
        "outputs": ["out", "lse", "weights"]},
    # numpy's vector exponentials are off by up to 2.52 ULP in f32.
    "arithmetic": {"profile": "f32", "exp_ulp": 3},
}


def scores(contract, tensors, q, k):
    """[B, Hq, Tq, Tk], before any exclusion."""
    kind, dtype = contract["score"]["kind"], q.dtype
    scale = dtype.type(attest_adapter.scale_of(contract))
    if kind == "additive":
        w_q, w_k, v_a = (tensors[name].astype(dtype) for name in ("w_q", "w_k", "v_a"))
        h_q, h_k = q @ w_q.T, k @ w_k.T
        if "b" in tensors:
            h_q = h_q + tensors["b"].astype(dtype)
        s = np.zeros(q.shape[:3] + k.shape[2:3], dtype)
        for unit in range(len(v_a)):
            s += v_a[unit] * np.tanh(h_q[..., unit, None] + h_k[..., None, :, unit])
        s *= scale
    else:
        if kind == "general":
            q = q @ tensors["w"].astype(dtype)
        s = q @ k.swapaxes(-1, -2) * scale
    if contract["score"]["softcap"] > 0:
        cap = dtype.type(contract["score"]["softcap"])
        s = cap * np.tanh(s / cap)
    bias = attest_adapter.additive_bias(contract, tensors, dtype)
    return s if bias is None else s + bias


def weighted_values(p, allowed, v):
    """p v, to which a key that is not allowed contributes nothing, also where v is not finite."""
    finite = np.isfinite(v)
    out = p @ np.where(finite, v, 0)
    for j in np.flatnonzero(~finite.all((0, 1, 3))):
        special = np.where(finite[:, :, j], 0, v[:, :, j])[:, :, None]
        out += np.where(allowed[..., j, None], p[..., j, None] * special, 0)
    return out


def attention(contract, tensors, threads):
    dtype = np.dtype(np.float64 if contract["dtype"] == "f64" else np.float32)
    q, k, v = (tensors[name].astype(dtype) for name in ("q", "k", "v"))
    k, v = attest_adapter.expand_heads(contract, k), attest_adapter.expand_heads(contract, v)
    allowed = attest_adapter.allowed_mask(contract, tensors)
    sinks = np.full((len(q[0]), 1, 1), -np.inf, dtype)
    if "sinks" in tensors:
        sinks = tensors["sinks"].astype(dtype)[:, None, None]
    with np.errstate(all="ignore"):
        s = np.where(allowed, scores(contract, tensors, q, k), -np.inf)
        m = np.maximum(s.max(-1, keepdims=True, initial=-np.inf), sinks)
        # Rows with nothing in them, not even a sink; what is not allowed has weight 0 in any row.
        empty = ~allowed.any(-1, keepdims=True) & np.isneginf(sinks)
        p = np.where(allowed, np.exp(s - m), 0)
        total = p.sum(-1, keepdims=True, dtype=dtype) + np.exp(sinks - m)
        lse = m + np.log(total)
        p = np.where(allowed, p / total, 0)  # once more: 0 / total is NaN where total is
        if contract.get("local", {}).get("gaussian"):
            j = np.arange(s.shape[-1], dtype=dtype)
            x = j - tensors["local_center"].astype(dtype)[..., None]
            x = x / dtype.type(contract["local"]["half_width"] / 2)
            p = np.where(allowed, p * np.exp(-x * x / 2), 0)
        kept = p
        if "keep" in tensors:
            kept = p * tensors["keep"] / dtype.type(1 - contract["dropout"]["rate"])
        out = weighted_values(kept, allowed, v)
        if "sinks" in tensors:  # a sink of NaN or infinity is seen in rows without keys as well
            out = out + np.where(np.isfinite(sinks) | np.isneginf(sinks), 0, np.nan).astype(dtype)

        policy, keys = contract["empty_row"], s.shape[-1]
        lse = np.where(empty, np.nan if policy == "nan" else -np.inf, lse)[..., 0]
        if policy == "nan":
            p, out = np.where(empty, np.nan, p), np.where(empty, np.nan, out)
        elif policy == "uniform" and keys > 0:
            p = np.where(empty, 1 / dtype.type(keys), p)
            out = np.where(empty, v.sum(2, keepdims=True) / dtype.type(keys), out)
    return {"out": out, "lse": lse, "weights": p}


if __name__ == "__main__":
    attest_adapter.serve(attention, INFO)
