# SPDX-License-Identifier: Apache-2.0
"""audit/adapters/attest_adapter.py: its files, and what it answers by the line protocol.

Run by ctest as `python3 adapter_test.py ADAPTERS`, the directory of the adapters.
"""
import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

ADAPTERS = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, ADAPTERS)
sys.dont_write_bytecode = True
import attest_adapter  # noqa: E402

# Its behaviour is the soft cap of the contract, which nothing else here uses.
FUNCTION = '''
import os, sys
sys.path.insert(0, {adapters!r})
sys.dont_write_bytecode = True
import numpy as np, attest_adapter
def function(contract, tensors, threads):
    q, v = tensors["q"], tensors["v"]
    out = np.zeros(q.shape[:3] + v.shape[3:], np.float64) + threads
    behaviour = contract["score"]["softcap"]
    if behaviour == 1:
        print("on standard output"); os.write(1, b"and below Python")
        os.system("echo from a child; cat")
    if behaviour == 2:
        raise KeyError("some\\nkey")
    if behaviour == 3:
        return out[..., :1]
    if behaviour == 4:
        raise attest_adapter.Unsupported("softcap 4")
    if behaviour == 5:
        sys.exit("no more")
    if behaviour == 6:
        return out.astype(complex)
    if behaviour == 7:
        return {{"lse": out[..., 0]}}
    if behaviour == 8:
        return None
    if behaviour == 9:
        raise NotImplementedError("not now")
    if behaviour == 10:
        wide = np.arange(2.0 * out.size).reshape(out.shape[:3] + (-1,))
        return {{"out": wide[..., ::2], "weights": np.asfortranarray(wide[..., :3])}}
    return out
attest_adapter.serve(function, {info})
'''


def contract(dtype="f32", **fields):
    return {"shape": {"q_len": 2, "kv_len": 3, "qk_dim": 2, "v_dim": 2}, "dtype": dtype, **fields}


def write_case(path, stated, dtype="F32", **more):
    s = stated["shape"]
    tensors = {"q": (dtype, np.zeros((1, 1, s["q_len"], s["qk_dim"]))),
               "k": (dtype, np.zeros((1, 1, s["kv_len"], s["qk_dim"]))),
               "v": (dtype, np.zeros((1, 1, s["kv_len"], s["v_dim"])))}
    tensors.update(more)
    attest_adapter.write_safetensors(path, tensors, {"attest": json.dumps(stated)})


class Files(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.directory.name, "x.safetensors")

    def tearDown(self):
        self.directory.cleanup()

    def round_trip(self, kind, array):
        attest_adapter.write_safetensors(self.path, {"x": (kind, array)})
        tensors, types, _ = attest_adapter.read_safetensors(self.path)
        self.assertEqual(types["x"], kind)
        return tensors["x"]

    def test_every_bfloat16_pattern_survives(self):
        patterns = np.arange(65536, dtype=np.uint32).astype(np.uint16)
        read = self.round_trip("BF16", attest_adapter.from_bf16_bits(patterns))
        np.testing.assert_array_equal(attest_adapter.bf16_bits(read), patterns)
        single = (patterns.astype(np.uint32) << 16).view(np.float32)  # where ml_dtypes is missing
        np.testing.assert_array_equal(attest_adapter.bf16_bits(single), patterns)

    def test_bfloat16_is_the_nearest_with_ties_to_even(self):
        finite = np.arange(0x7F80, dtype=np.uint32)
        low = (finite << 16).view(np.float32).astype(np.float64)
        high = np.append(low[1:], 2.0**128)  # the largest rounds to infinity from its midpoint on
        middle = (low + high) / 2
        even = np.where(finite % 2 == 0, finite, finite + 1)
        for values, expected in [(low, finite), (middle, even),
                                 (np.nextafter(middle, 0), finite),
                                 (np.nextafter(middle, np.inf), finite + 1)]:
            np.testing.assert_array_equal(attest_adapter.bf16_bits(values), expected)
            np.testing.assert_array_equal(attest_adapter.bf16_bits(-values), expected | 0x8000)
        with np.errstate(over="ignore"):
            single = middle.astype(np.float32)
        np.testing.assert_array_equal(attest_adapter.bf16_bits(single), even)

    def test_not_a_number_stays_one(self):
        bits = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32)
        np.testing.assert_array_equal(attest_adapter.bf16_bits(bits.view(np.float32)),
                                      [0x7FC0, 0xFFC0, 0x7FFF, 0xFFFF])

    def test_other_types_survive(self):
        for kind, array in [("F64", np.array([[0.1, -0.0], [np.inf, 5e-324]])),
                            ("F32", np.float32([1e-45, 3e38])), ("F16", np.float16([6e-8, 65504])),
                            ("I32", np.int32([-2**31, 2**31 - 1])), ("I64", np.int64([-2**63])),
                            ("BOOL", np.array([[True], [False]])), ("F32", np.zeros((2, 0, 3), "f4")),
                            ("BF16", np.zeros((0, 2), "f4")), ("F32", np.float32(3)),
                            ("BF16", np.float32(3))]:
            read = self.round_trip(kind, array)
            self.assertEqual(read.shape, array.shape)
            if kind != "BF16" or attest_adapter.BFLOAT16 is None:
                self.assertEqual(read.tobytes(), array.tobytes())

    def test_layouts_of_memory_do_not_matter(self):
        array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        for kind in ("F32", "BF16"):
            for view in (array.T, array[:, ::-2], np.asfortranarray(array)):
                read = self.round_trip(kind, view)
                np.testing.assert_array_equal(read.astype(np.float32), view)

    def test_damaged_files_are_refused(self):
        for content in (b"", b"\0" * 7, (100).to_bytes(8, "little") + b"{}"):
            with open(self.path, "wb") as file:
                file.write(content)
            with self.assertRaisesRegex(ValueError, "truncated"):
                attest_adapter.read_safetensors(self.path)

    def test_defaults_of_a_contract(self):
        full = attest_adapter.complete(contract("bf16"), {"grad_out": None})
        self.assertEqual(full["outputs"], ["out", "grad_q", "grad_k", "grad_v"])
        self.assertEqual((full["out_dtype"], full["empty_row"]), ("bf16", "zero"))
        self.assertEqual(full["shape"]["k_dim"], 2)
        self.assertEqual(full["score"]["scale"], "rsqrt_dk")
        for wrong in ({"attest_contract": 2}, {"masks": {}}):
            with self.assertRaisesRegex(ValueError, "contract: unknown"):
                attest_adapter.complete(contract(**wrong), {})


class Protocol(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.case = os.path.join(self.directory.name, "case.safetensors")
        self.result = os.path.join(self.directory.name, "result.safetensors")
        self.script = os.path.join(self.directory.name, "adapter.py")

    def tearDown(self):
        self.directory.cleanup()

    def start(self, info=None, arguments=()):
        with open(self.script, "w", encoding="utf-8") as file:
            file.write(FUNCTION.format(adapters=ADAPTERS, info=info))
        return subprocess.Popen([sys.executable, self.script, *arguments], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ask(self, lines, info=None):
        """The answers to lines, each of which must be one line; and standard error."""
        process = self.start(info)
        out, err = process.communicate("".join(json.dumps(line) + "\n" for line in lines))
        self.assertEqual(process.returncode, 0, err)
        answers = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(len(answers), len(lines), out)
        return answers, err

    def run_case(self, behaviour, info=None, **more):
        write_case(self.case, contract(score={"softcap": behaviour}, **more))
        if os.path.exists(self.result):
            os.remove(self.result)
        request = {"case": self.case, "result": self.result, "threads": 3}
        answers, err = self.ask([request], info)
        self.assertEqual(os.path.exists(self.result), answers[0]["status"] == "ok")
        self.assertEqual([n for n in os.listdir(self.directory.name) if n.endswith(".tmp")], [])
        return answers[0], err

    def test_info(self):
        info = {"name": "mine", "supports": {"masks": []}}
        self.assertEqual(self.ask([{"info": True}], info)[0], [{"status": "ok", "info": info}])
        self.assertEqual(self.ask([{"info": True}])[0], [{"status": "unsupported"}])

    def test_results_are_rounded_to_the_types_of_the_contract(self):
        self.assertEqual(self.run_case(0, out_dtype="bf16")[0], {"status": "ok", "message": ""})
        tensors, types, _ = attest_adapter.read_safetensors(self.result)
        self.assertEqual(types, {"out": "BF16"})
        np.testing.assert_array_equal(tensors["out"].astype(float), np.full((1, 1, 2, 2), 3.0))
        self.assertEqual(self.run_case(10, outputs=["out", "weights"])[0]["status"], "ok")
        tensors = attest_adapter.read_safetensors(self.result)[0]
        np.testing.assert_array_equal(tensors["out"].flatten(), [0, 2, 4, 6])
        np.testing.assert_array_equal(tensors["weights"].flatten(), [0, 1, 2, 4, 5, 6])

    def test_prints_do_no_harm(self):
        answer, err = self.run_case(1)
        self.assertEqual(answer["status"], "ok")
        for text in ("on standard output", "and below Python", "from a child"):
            self.assertIn(text, err)

    def test_answers_come_one_by_one(self):
        write_case(self.case, contract(score={"softcap": 1}))
        process = self.start()
        timer = threading.Timer(60, process.kill)  # instead of waiting for ever
        timer.start()
        for _ in range(3):
            process.stdin.write(json.dumps({"case": self.case, "result": self.result}) + "\n")
            process.stdin.flush()
            self.assertEqual(json.loads(process.stdout.readline())["status"], "ok")
        process.communicate()
        timer.cancel()
        self.assertEqual(process.returncode, 0)

    def test_failures_are_told_in_one_line(self):
        expected = [
            (2, "error", r"KeyError: 'some\\nkey' \(adapter.py:1\d\)"),
            (3, "error", r"ValueError: out: expected shape \[1, 1, 2, 2\], found \[1, 1, 2, 1\]"),
            (4, "unsupported", "softcap 4"), (5, "error", "SystemExit: no more"),
            (6, "error", "TypeError: out: expected an array of real numbers, found complex128"),
            (7, "unsupported", "outputs: it gives none of out"),
            (8, "error", "TypeError: the function returned nothing"), (9, "unsupported", "not now")]
        requests = []
        for behaviour, _, _ in expected:
            case = os.path.join(self.directory.name, f"{behaviour}.safetensors")
            write_case(case, contract(score={"softcap": behaviour}))
            requests.append({"case": case, "result": self.result, "threads": 1})
        for answer, (_, status, message) in zip(self.ask(requests)[0], expected):
            self.assertEqual(answer["status"], status)
            self.assertRegex(answer["message"], message)
        self.assertFalse(os.path.exists(self.result))

    def test_what_is_declared_missing_is_not_computed(self):
        for supports, fields, message in [
                ({"features": []}, {"score": {"softcap": 1}}, "features: no softcap"),
                ({"features": []}, {"score": {"scale": 1}}, "features: no explicit_scale"),
                ({"features": []}, {"dropout": {"rate": 0.5}}, "features: no dropout"),
                ({"dtypes": ["f64"]}, {}, "dtypes: no f32"), ({"scores": []}, {}, "scores: no dot"),
                ({"head_dims": [64]}, {}, "head_dims: no 2"),
                ({"masks": ["window"]}, {"mask": {"causal": "top_left"}}, "masks: no causal_top_left"),
                ({"masks": []}, {"mask": {"window": [0, -1]}}, "masks: no window"),
                ({"masks": [], "features": []}, {}, "None")]:
            full = attest_adapter.complete(contract(**fields), {})
            missing = attest_adapter.missing_for({"supports": supports}, full, {})
            self.assertEqual(str(missing), message)
        answer = self.run_case(2, {"supports": {"features": []}})[0]
        self.assertEqual(answer, {"status": "unsupported", "message": "features: no softcap"})
        answer = self.run_case(0, {"supports": {"outputs": ["lse"]}})[0]
        self.assertEqual(answer["message"], "outputs: none of those that the case asks for")

    def test_bad_requests_end_nothing(self):
        write_case(self.case, contract())
        good = {"case": self.case, "result": self.result, "threads": 1}
        lines = [{"nonsense": 1}, [1], {**good, "case": self.case + "x"}, good]
        statuses = [answer["status"] for answer in self.ask(lines)[0]]
        self.assertEqual(statuses, ["error", "error", "error", "ok"])

    def test_directories(self):
        cases = os.path.join(self.directory.name, "cases")
        results = os.path.join(self.directory.name, "results")
        os.mkdir(cases)
        os.mkdir(results)
        with open(os.path.join(results, "4.safetensors"), "w", encoding="utf-8"):
            pass  # of an earlier run
        for behaviour in (0, 2, 4):
            write_case(os.path.join(cases, f"{behaviour}.safetensors"),
                       contract(score={"softcap": behaviour}))
        process = self.start({"name": "mine"}, ["--cases", cases, "--results", results])
        out, err = process.communicate()
        self.assertEqual(process.returncode, 1)
        self.assertEqual(sorted(os.listdir(results)), ["0.safetensors", "info.json"])
        self.assertIn("3 cases: 1 results", out)
        self.assertIn("unsupported: softcap 4 (1 cases)", out)
        self.assertRegex(err, "^2.safetensors: KeyError")
        os.remove(os.path.join(cases, "2.safetensors"))
        process = self.start(None, ["--cases", cases, "--results", results])
        process.communicate()
        self.assertEqual(process.returncode, 0)
        for arguments, message in [(["--cases", cases], "belong together"),
                                   (["--cases", cases, "--results", cases], "would replace"),
                                   (["--cases", cases + "x", "--results", results], "No such")]:
            process = self.start(None, arguments)
            self.assertIn(message, process.communicate()[1])
            self.assertEqual(process.returncode, 2)


if __name__ == "__main__":
    unittest.main()
