# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the CPU as an adapter: `python3 torch_attention.py math` or `... sdpa`.

math: softmax(Q K^T) V of torch's operations, with gradients by autograd.
sdpa: torch.nn.functional.scaled_dot_product_attention as it is, or its forerunner in torch 1.13.
Both are audited in f32, f64, bf16 and, where this torch multiplies f16 matrices on a CPU, f16; 16-bit
tensors are stored between the steps, profiles bf16-math and f16-math.
"""
import sys

import numpy as np
import torch

import attest_adapter
from attest_adapter import Unsupported

DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
GRADIENTS = ["grad_q", "grad_k", "grad_v"]
SDPA = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
SCALED = SDPA is not None and "scale" in (SDPA.__doc__ or "")
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def has_f16():
    try:
        torch.softmax(torch.ones(2, 2, dtype=torch.float16) @ torch.ones(2, 2, dtype=torch.float16), -1)
        return True
    except RuntimeError:
        return False


def info(variant):
    masks = ["boolean", "bias", "causal_top_left", "causal_bottom_right", "window", "kv_lengths",
             "q_lengths", "documents"]
    features = ["gqa", "alibi", "v_dim", "out_dtype"]
    if variant == "math":
        features += ["softcap", "dropout", "grad_lse"]
    if variant == "math" or SCALED:
        features.append("explicit_scale")
    outputs = ["out"] + GRADIENTS + (["lse", "weights"] if variant == "math" else [])
    safe = variant == "math" or VERSION >= (2, 5)  # earlier ones divide 0 by 0
    return {"name": "torch " + variant, "version": torch.__version__,
            "supports": {"dtypes": [d for d in DTYPES if d != "f16" or has_f16()], "scores": ["dot"],
                         "masks": masks, "features": features, "outputs": outputs,
                         "empty_row": "zero" if safe else "nan"},
            "arithmetic": [{"profile": "bf16-math"}, {"profile": "f16-math"}, {"profile": "f32"}]}


def tensor(array, dtype):
    """The numpy array in torch; the types of bfloat16 that numpy may have are exact in float32."""
    if array.dtype not in (np.float64, np.float32, np.float16, bool):
        array = array.astype(np.float32)
    return torch.from_numpy(array).to(dtype)


def math(contract, tensors, q, k, v):
    """out, lse and weights."""
    if not all(np.isfinite(tensors[name].astype(np.float64)).all() for name in "qkv"):
        raise Unsupported("NaN or infinity in q, k or v: a product of matrices lets masked keys through")
    allowed = torch.from_numpy(attest_adapter.allowed_mask(contract, tensors))
    s = q @ k.transpose(-1, -2) * attest_adapter.scale_of(contract)
    cap = contract["score"]["softcap"]
    if cap > 0:
        s = cap * torch.tanh(s / cap)
    bias = attest_adapter.additive_bias(contract, tensors)
    if bias is not None:
        s = s + torch.from_numpy(bias).to(s.dtype)
    empty = ~allowed.any(-1, keepdim=True)
    s = s.masked_fill(~allowed, -np.inf).masked_fill(empty, 0)  # else NaN, and in all gradients
    p = torch.softmax(s, -1).masked_fill(~allowed, 0)
    wide = s if s.dtype == torch.float64 else s.float()
    lse = torch.logsumexp(wide, -1).masked_fill(empty[..., 0], -np.inf)
    kept = p
    if "keep" in tensors:
        kept = p * torch.from_numpy(tensors["keep"]) / (1 - contract["dropout"]["rate"])
    return {"out": kept @ v, "lse": lse, "weights": p}


def sdpa(contract, tensors, q, k, v):
    """out of torch's own function."""
    s, score = contract["shape"], contract["score"]
    if s["q_len"] == 0 or s["kv_len"] == 0:
        raise Unsupported("no queries or no keys")
    allowed = attest_adapter.allowed_mask(contract, tensors)
    bias = attest_adapter.additive_bias(contract, tensors)
    causal = np.tril(np.ones((s["q_len"], s["kv_len"]), bool))
    mask, is_causal = None, False
    if bias is not None:
        mask = tensor(np.where(allowed, bias, -np.inf), q.dtype)
    elif contract["mask"]["causal"] == "top_left" and (allowed == causal).all():
        is_causal = True
    elif not allowed.all():
        mask = torch.from_numpy(allowed)
    if SDPA is None:
        out, _ = torch.nn.functional._scaled_dot_product_attention(
            q, k, v, mask, is_causal=is_causal)
        return {"out": out}
    scale = {} if score["scale"] == "rsqrt_dk" else {"scale": score["scale"]}
    return {"out": SDPA(q, k, v, attn_mask=mask, is_causal=is_causal, **scale)}


def attention(variant, contract, tensors, threads):
    if contract["dtype"] != contract["out_dtype"] and contract["dtype"] in ("bf16", "f16"):
        raise Unsupported("16-bit tensors with an output of another type")
    torch.set_num_threads(max(threads, 1))
    dtype = DTYPES[contract["dtype"]]
    q, k, v = (tensor(tensors[name], dtype).requires_grad_() for name in "qkv")
    group = contract["shape"]["q_heads"] // contract["shape"]["kv_heads"]

    def heads(x):  # [B, Hkv, T, D] -> [B, Hq, T, D]
        return x[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2)

    with np.errstate(all="ignore"):
        outputs = variant(contract, tensors, q, heads(k), heads(v))
    asked = [name for name in GRADIENTS if name in contract["outputs"]]
    if asked:
        ends, gradients = [], []
        for name in ("out", "lse"):
            if "grad_" + name in tensors:
                ends.append(outputs[name])
                gradients.append(tensor(tensors["grad_" + name], outputs[name].dtype))
        found = torch.autograd.grad(ends, (q, k, v), gradients, allow_unused=True)
        for name, of, gradient in zip(GRADIENTS, (q, k, v), found):
            outputs[name] = torch.zeros_like(of) if gradient is None else gradient
    return outputs


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("math", "sdpa"):
        sys.exit("usage: torch_attention.py math|sdpa [--cases DIR --results DIR]")
    chosen = math if sys.argv[1] == "math" else sdpa
    attest_adapter.serve(lambda *case: attention(chosen, *case), info(sys.argv[1]))
