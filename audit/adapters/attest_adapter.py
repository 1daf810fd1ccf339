# SPDX-License-Identifier: Apache-2.0
"""Makes a Python function auditable by Attest: one file, Python 3.9 or later and numpy.

serve(function, info) answers `attest audit --exec 'python3 my_adapter.py'`, and computes the cases
of a directory, `my_adapter.py --cases DIR --results DIR` (docs/plugins.md, "Python").

function(contract, tensors, threads) gets the contract as a dict with every default filled in, and
the tensors as numpy arrays by name. It returns the array of `out`, or a dict of outputs by name, as
numpy, torch or JAX arrays, which are rounded to the type that the contract wants. bfloat16 tensors
are ml_dtypes.bfloat16 where that is installed, else float32, which holds them exactly.
"""
import argparse
import json
import math
import os
import sys
import traceback

import numpy as np

try:
    from ml_dtypes import bfloat16 as BFLOAT16
except ImportError:
    BFLOAT16 = None

# Names of safetensors, of the contract, and numpy's; bfloat16 is converted by hand.
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4",
          "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"}
_FIELDS = {"attest_contract", "shape", "dtype", "out_dtype", "score", "mask", "empty_row", "dropout",
           "local", "outputs", "arithmetic"}


class Unsupported(Exception):
    """The function does not offer what the case asks for; no error."""


def bf16_bits(array):
    """Bit patterns (uint16) of bfloat16: nearest, ties to even, also of doubles; NaN payloads stay."""
    shape, array = array.shape, np.ascontiguousarray(array).reshape(-1)
    if BFLOAT16 is not None and array.dtype == BFLOAT16:
        return array.view(np.uint16).reshape(shape)
    if array.dtype == np.float32:
        bits = array.view(np.uint32)
    else:  # to odd first, so that the two roundings are one
        wide = array.astype(np.float64)
        with np.errstate(all="ignore"):
            single = wide.astype(np.float32)
            back = single.astype(np.float64)
            inexact = (back != wide) & ~np.isnan(wide)
            beyond = np.abs(back) > np.abs(wide)
        bits = (single.view(np.uint32) - beyond.astype(np.uint32)) | inexact.astype(np.uint32)
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    rounded = (bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | np.where(bits & 0x007F0000, 0, 0x0040)  # of a payload in the low bits
    return np.where(is_nan, quiet, rounded).astype(np.uint16).reshape(shape)


def from_bf16_bits(bits):
    """bfloat16 values of bit patterns: ml_dtypes.bfloat16 where installed, else float32 (exact)."""
    if BFLOAT16 is not None:
        return np.ascontiguousarray(bits).view(BFLOAT16).reshape(bits.shape)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def read_safetensors(path):
    """Tensors and their types ("F32", ...) by name, and the metadata of a .safetensors file."""
    with open(path, "rb") as file:
        content = file.read()
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8:
        raise ValueError(f"{path}: no .safetensors file, or truncated")
    header = json.loads(content[8:8 + length].decode("utf-8"))
    metadata = header.pop("__metadata__", {})
    data = np.frombuffer(content, np.uint8)[8 + length:]
    tensors, types = {}, {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        kind = types[name] = entry["dtype"]
        if kind not in _TYPES:
            raise Unsupported(f"tensor '{name}' has type {kind}")
        values = data[begin:end].copy().view(_TYPES[kind]).reshape(entry["shape"])
        tensors[name] = from_bf16_bits(values) if kind == "BF16" else values
    return tensors, types, metadata


def _write(path, content):
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def write_safetensors(path, tensors, metadata=None):
    """Writes {name: (type, array)}, types as safetensors names them; complete or not at all."""
    header, parts, position = {}, [], 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (kind, array) in sorted(tensors.items()):
        array = np.asarray(array)
        stored = bf16_bits(array) if kind == "BF16" else array.astype(_TYPES[kind])
        part = stored.tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape),
                        "data_offsets": [position, position + len(part)]}
        position += len(part)
        parts.append(part)
    text = json.dumps(header).encode("utf-8")
    text += b" " * (-len(text) % 8)
    _write(path, len(text).to_bytes(8, "little") + text + b"".join(parts))


def read_case(path):
    """The contract of a case, complete, its tensors and their types."""
    tensors, types, metadata = read_safetensors(path)
    if "attest" not in metadata:
        raise ValueError(f"{path}: no contract (metadata key 'attest')")
    return complete(json.loads(metadata["attest"]), tensors), tensors, types


def complete(contract, tensors):
    """The contract with every default filled in; refuses fields and versions that it does not know."""
    unknown = sorted(set(contract) - _FIELDS)
    if unknown or contract.get("attest_contract", 1) != 1:
        raise ValueError(f"contract: unknown {unknown[0] if unknown else 'version'}")
    shape = {"batch": 1, "q_heads": 1, **contract["shape"]}
    shape = {"kv_heads": shape["q_heads"], "k_dim": shape["qk_dim"], **shape}
    score = {"kind": "dot", "softcap": 0, **contract.get("score", {})}
    score.setdefault("scale", "rsqrt_dk" if score["kind"] == "dot" else 1)
    done = {"out_dtype": contract["dtype"], "empty_row": "zero", "arithmetic": {}, **contract}
    done.update(shape=shape, score=score, dropout={"rate": 0, **contract.get("dropout", {})},
                mask={"causal": "none", "window": [-1, -1], **contract.get("mask", {})})
    if "local" in contract:
        done["local"] = {"gaussian": False, **contract["local"]}
    done["outputs"] = list(contract.get("outputs") or default_outputs(tensors))
    return done


def default_outputs(tensors):
    """What a contract asks for that names no outputs."""
    return ["out"] + (["grad_q", "grad_k", "grad_v"] if "grad_out" in tensors else [])


def lse_dtype(contract):
    """The type of lse: "f64" for f64, else "f32"."""
    return "f64" if contract["dtype"] == "f64" else "f32"


def scale_of(contract):
    """The factor of a score, as a double: 1/sqrt(D_k), or the one that is given."""
    scale = contract["score"]["scale"]
    return 1.0 / math.sqrt(contract["shape"]["k_dim"]) if scale == "rsqrt_dk" else float(scale)


def expand_heads(contract, array):
    """k or v [B, Hkv, Tk, D] with a head for each query head."""
    return np.repeat(array, contract["shape"]["q_heads"] // contract["shape"]["kv_heads"], axis=1)


def allowed_mask(contract, tensors):
    """Which keys take part, as booleans [B, Hq, Tq, Tk]: everything that the contract may exclude."""
    s, mask = contract["shape"], contract["mask"]
    i, j = np.arange(s["q_len"])[:, None], np.arange(s["kv_len"])
    allowed = np.ones((s["batch"], s["q_heads"], s["q_len"], s["kv_len"]), bool)

    def lengths(name, default):  # [B, 1, 1, 1]
        return tensors.get(name, np.full(s["batch"], default)).astype(np.int64)[:, None, None, None]

    kv_length, q_length = lengths("kv_lengths", s["kv_len"]), lengths("q_lengths", s["q_len"])
    offset = np.zeros_like(kv_length) if mask["causal"] == "top_left" else kv_length - q_length
    allowed &= (j < kv_length) & (i < q_length)
    left, right = mask["window"]
    if mask["causal"] != "none":
        allowed &= j <= i + offset
    if left >= 0:
        allowed &= j - (i + offset) >= -left
    if right >= 0:
        allowed &= j - (i + offset) <= right
    if "mask" in tensors:
        allowed &= tensors["mask"]
    if "bias" in tensors:
        allowed &= ~np.isneginf(tensors["bias"].astype(np.float32))  # a NaN takes part
    if "q_documents" in tensors:
        q, k = tensors["q_documents"], tensors["kv_documents"]
        allowed &= (q[:, :, None] == k[:, None, :])[:, None]
    if "local_center" in tensors:
        center = tensors["local_center"].astype(np.float64)[..., None]
        allowed &= np.abs(j - center) <= contract["local"]["half_width"]  # false for NaN
    return allowed


def alibi_slopes(contract, tensors):
    """The slopes [Hq] of ALiBi as doubles, or None where there is none."""
    alibi = contract["mask"].get("alibi")
    if alibi == "none" or (alibi is None and "alibi_slopes" not in tensors):
        return None
    if "alibi_slopes" in tensors:
        return tensors["alibi_slopes"].astype(np.float64)
    heads = contract["shape"]["q_heads"]
    power = 1 << (heads.bit_length() - 1)
    return np.exp2([-8.0 * (h + 1) / power if h < power else -4.0 * (2 * (h - power) + 1) / power
                    for h in range(heads)])


def additive_bias(contract, tensors, dtype=np.float64):
    """Bias plus ALiBi in `dtype`, broadcastable to [B, Hq, Tq, Tk]; None where there is neither."""
    s = contract["shape"]
    bias = tensors["bias"].astype(dtype) if "bias" in tensors else None
    slopes = alibi_slopes(contract, tensors)
    if slopes is not None:
        i, j = np.arange(s["q_len"])[:, None], np.arange(s["kv_len"])
        distance = np.abs(i + s["kv_len"] - s["q_len"] - j).astype(dtype)
        alibi = -slopes.astype(dtype)[None, :, None, None] * distance
        bias = alibi if bias is None else bias + alibi
    return bias


def needs_of(contract, tensors):
    """What a case needs, as (list, name) of the info's "supports"."""
    s, mask, score = contract["shape"], contract["mask"], contract["score"]
    yield "dtypes", contract["dtype"]
    yield "scores", score["kind"]
    for name, present in {
            "boolean": "mask" in tensors, "bias": "bias" in tensors,
            "causal_" + mask["causal"]: mask["causal"] != "none", "window": max(mask["window"]) >= 0,
            "kv_lengths": "kv_lengths" in tensors, "q_lengths": "q_lengths" in tensors,
            "documents": "q_documents" in tensors, "local": "local" in contract}.items():
        if present:
            yield "masks", name
    default_scale = "rsqrt_dk" if score["kind"] == "dot" else 1
    for name, present in {
            "gqa": s["q_heads"] != s["kv_heads"], "softcap": score["softcap"] > 0,
            "alibi": alibi_slopes(contract, tensors) is not None, "sinks": "sinks" in tensors,
            "dropout": "keep" in tensors or contract["dropout"]["rate"] > 0,
            "explicit_scale": score["scale"] != default_scale,
            "v_dim": s["v_dim"] != s["qk_dim"], "grad_lse": "grad_lse" in tensors,
            "out_dtype": contract["out_dtype"] != contract["dtype"]}.items():
        if present:
            yield "features", name


def missing_for(info, contract, tensors):
    """What a case needs and the info's "supports" lacks, in words; None where nothing is missing."""
    supports = (info or {}).get("supports", {})
    for kind, name in needs_of(contract, tensors):
        if kind in supports and name not in supports[kind]:
            return f"{kind}: no {name}"
    for dim in ("qk_dim", "k_dim", "v_dim"):
        if contract["shape"][dim] not in supports.get("head_dims", [contract["shape"][dim]]):
            return f"head_dims: no {contract['shape'][dim]}"
    return None


def _type_and_shape(contract, tensors, types, name):
    """The type of safetensors and the shape that an output must have."""
    s = contract["shape"]
    rows = (s["batch"], s["q_heads"], s["q_len"])
    if name == "lse":
        return lse_dtype(contract).upper(), rows
    if name in ("out", "weights"):
        return contract["out_dtype"].upper(), rows + (s["v_dim" if name == "out" else "kv_len"],)
    return types[name[5:]], tensors[name[5:]].shape  # a gradient's are its tensor's


def _as_array(name, value):
    if hasattr(value, "detach"):  # torch, whose bfloat16 numpy does not know
        value = value.detach().cpu()
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "fiub" and array.dtype != BFLOAT16:
        raise TypeError(f"{name}: expected an array of real numbers, found {array.dtype}")
    return array


def run_case(function, info, case, result, threads=1):
    """Computes one case file; raises what the function raises."""
    contract, tensors, types = read_case(case)
    missing = missing_for(info, contract, tensors)
    if missing:
        raise Unsupported(missing)
    # Attest judges by what is declared.
    supports = (info or {}).get("supports", {})
    offered = supports.get("outputs", contract["outputs"])
    contract["outputs"] = [name for name in contract["outputs"] if name in offered]
    contract["empty_row"] = supports.get("empty_row", contract["empty_row"])
    if not contract["outputs"]:
        raise Unsupported("outputs: none of those that the case asks for")
    asked = {name: _type_and_shape(contract, tensors, types, name) for name in contract["outputs"]}
    outputs = function(contract, tensors, threads)
    if outputs is None:
        raise TypeError("the function returned nothing")
    if not isinstance(outputs, dict):
        outputs = {"out": outputs}
    stored = {}
    for name in [name for name in asked if name in outputs]:
        kind, shape = asked[name]
        stored[name] = (kind, _as_array(name, outputs[name]))
        if stored[name][1].shape != shape:
            found = list(stored[name][1].shape)
            raise ValueError(f"{name}: expected shape {list(shape)}, found {found}")
    if not stored:
        raise Unsupported("outputs: it gives none of " + ", ".join(asked))
    with np.errstate(all="ignore"):
        write_safetensors(result, stored)


def _explain(error):
    """An exception in one line: type, message, and where."""
    frames = traceback.extract_tb(error.__traceback__)
    where = ([f for f in frames if f.filename != __file__] or frames)[-1]
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{text} ({os.path.basename(where.filename)}:{where.lineno})"


def _attempt(work):
    """The answer of the protocol to a piece of work."""
    try:
        work()
    except (Unsupported, NotImplementedError) as reason:
        return {"status": "unsupported", "message": " ".join(str(reason).split())}
    except (Exception, SystemExit) as error:
        return {"status": "error", "message": _explain(error)}
    return {"status": "ok", "message": ""}


def _serve_lines(function, info):
    # Requests and answers have the standard streams for themselves: what the function prints goes
    # to standard error, and there is nothing for it to read.
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for line in requests:
        if not line.strip():
            continue
        try:
            request = json.loads(line)
            if request.get("info"):
                answer = {"status": "ok", "info": info} if info else {"status": "unsupported"}
            else:
                case, result = request["case"], request["result"]
                threads = int(request.get("threads", 1))
                answer = _attempt(lambda: run_case(function, info, case, result, threads))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            answer = {"status": "error", "message": f"bad request: {_explain(error)}"}
        sys.stdout.flush()
        try:
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
        except BrokenPipeError:
            os._exit(1)  # nobody listens any more
    return 0


def _run_directory(function, info, cases, results, threads):
    try:
        names = sorted(name for name in os.listdir(cases)
                       if name.endswith(".safetensors") and not name.startswith("."))
        os.makedirs(results, exist_ok=True)
        if not names or os.path.samefile(cases, results):
            raise OSError(f"{cases}: " + ("results would replace the cases" if names else "no case"))
        _write(os.path.join(results, "info.json"), json.dumps(info or {}).encode("utf-8"))
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    counts, reasons = {"ok": 0, "unsupported": 0, "error": 0}, {}
    for name in names:
        result = os.path.join(results, name)
        if os.path.exists(result):
            os.remove(result)  # of an earlier run
        case = os.path.join(cases, name)
        answer = _attempt(lambda: run_case(function, info, case, result, threads))
        counts[answer["status"]] += 1
        if answer["status"] == "error":
            print(f"{name}: {answer['message']}", file=sys.stderr)
        elif answer["status"] == "unsupported":
            reasons[answer["message"]] = reasons.get(answer["message"], 0) + 1
    for reason in sorted(reasons, key=reasons.get, reverse=True):
        print(f"unsupported: {reason} ({reasons[reason]} cases)")
    print(f"{len(names)} cases: {counts['ok']} results in {results}, {counts['unsupported']} "
          f"unsupported, {counts['error']} errors")
    return 1 if counts["error"] else 0


def serve(function, info=None, arguments=None):
    """Serves Attest's line protocol, or --cases DIR --results DIR, and ends the process."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--cases", help="directory of case files (attest export)")
    parser.add_argument("--results", help="directory for the results")
    parser.add_argument("--threads", type=int, default=1)
    options, _ = parser.parse_known_args(arguments)
    if bool(options.cases) != bool(options.results):
        parser.error("--cases and --results belong together")
    if options.cases:
        sys.exit(_run_directory(function, info, options.cases, options.results, options.threads))
    if os.isatty(0):
        print("reading requests from standard input; see also --help", file=sys.stderr)
    sys.exit(_serve_lines(function, info))
