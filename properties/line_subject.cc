// SPDX-License-Identifier: Apache-2.0
// A program that speaks the line protocol, for tests: line_subject WHAT [CALL] is right, except
// that it does WHAT at its call number CALL (0: at every call; calls of the audit's trials count).
// The environment variable LINE_SUBJECT_INFO is what it declares; empty: nothing.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "audit/kernel_call.h"
#include "core/case.h"
#include "core/random.h"
#include "core/safetensors.h"

namespace attest {
namespace {

using nlohmann::json;

void Answer(const std::string& line) { std::cout << line << std::endl; }

// Ways to go wrong before anything is computed; what does not return has done it.
void Misbehave(const std::string& what) {
  if (what == "crash") {
    volatile int* nowhere = nullptr;
    *nowhere = 1;
  }
  if (what == "abort") std::abort();
  if (what == "exit") std::exit(0);
  if (what == "loop") {
    while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  if (what == "hog") {
    std::vector<std::vector<char>> memory;
    while (true) memory.emplace_back(std::size_t{1} << 24, 'x');
  }
  if (what == "close") {
    close(STDOUT_FILENO);
    std::this_thread::sleep_for(std::chrono::seconds(30));
  }
}

// Ways to answer wrongly. Whether it has answered.
bool AnswerWrongly(const std::string& what, const std::string& result) {
  if (what == "garbage") {
    Answer("hello");
  } else if (what == "garbage-json") {
    Answer("[1, 2");
  } else if (what == "no-status") {
    Answer("{}");
  } else if (what == "unknown-status") {
    Answer(R"({"status":"perfect"})");
  } else if (what == "endless") {
    std::cout << std::string(std::size_t{1} << 21, 'x') << std::flush;
  } else if (what == "no-result") {
    Answer(R"({"status":"ok"})");
  } else if (what == "half-result") {
    std::ofstream(result) << std::string("\x40\0\0\0\0\0\0\0{\"out\":{\"dty", 20);
    Answer(R"({"status":"ok"})");
  } else if (what == "error") {
    Answer(R"({"status":"error","message":"out of paper"})");
  } else if (what == "unsupported") {
    Answer(R"({"status":"unsupported","message":"not today"})");
  } else {
    return false;
  }
  return true;
}

// Ways to give wrong numbers.
void Spoil(const std::string& what, const Case& problem, std::uint64_t call, TensorMap* previous,
           TensorMap* outputs) {
  const RandomStream stream(call, problem.name, "random");
  for (auto& [name, tensor] : *outputs) {
    for (Index i = 0; i < tensor.size(); ++i) {
      if (what == "zeros") tensor.Set(i, 0.0);
      if (what == "nan") tensor.Set(i, std::numeric_limits<double>::quiet_NaN());
      if (what == "random") tensor.Set(i, stream.Normal(static_cast<std::uint64_t>(i)));
      if (what == "copy") {
        const Tensor& q = problem.tensors.at("q");
        tensor.Set(i, q.size() > 0 ? q.At(i % q.size()) : 0.0);
      }
    }
    if (what == "previous") {
      // What the last call gave, as far as it reaches.
      const Tensor now = tensor;
      if (const auto last = previous->find(name); last != previous->end()) {
        const Tensor& then = last->second;
        for (Index i = 0; i < tensor.size() && i < then.size(); ++i) tensor.Set(i, then.At(i));
      }
      (*previous)[name] = now;
    }
  }
}

int Main(const std::string& what, Index keys) {
  const char* const info = std::getenv("LINE_SUBJECT_INFO");
  TensorMap previous;
  Execution execution(1);
  std::uint64_t call = 0;
  for (std::string line; std::getline(std::cin, line);) {
    const json request = json::parse(line);
    if (request.contains("info")) {
      if (what == "crash-at-start") std::abort();
      Answer(info == nullptr ? R"({"status":"unsupported"})"
                             : R"({"status":"ok","info":)" + std::string(info) + "}");
      if (what == "unasked") Answer("by the way");
      continue;
    }
    const StatusOr<Case> problem = ReadCase(request["case"].get<std::string>());
    if (!problem.ok()) return 1;
    const bool meant = keys == 0 || problem->contract.shape.kv_len == keys;
    const std::string now = meant ? what : "right";
    Misbehave(now);
    const std::string result = request["result"];
    if (AnswerWrongly(now, result)) continue;
    StatusOr<TensorMap> outputs =
        RunKernel(*problem, Mode::kFast, AttentionAlgorithm::kTiled, execution);
    if (!outputs.ok()) return 1;
    Spoil(now, *problem, ++call, &previous, &*outputs);
    if (now == "missing-output") outputs->erase("out");
    if (now == "wrong-shape") (*outputs)["out"] = Tensor(problem->contract.out_dtype, {1, 2, 3});
    if (now == "noise") std::cerr << std::string(std::size_t{1} << 20, 'x') << std::endl;
    if (!WriteSafetensors(result, {*outputs, {}}).ok()) return 1;
    Answer(R"({"status":"ok"})");
  }
  return 0;
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) {
  return attest::Main(argc > 1 ? argv[1] : "right", argc > 2 ? std::stol(argv[2]) : 0);
}
