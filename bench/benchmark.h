// SPDX-License-Identifier: Apache-2.0
// Benchmarks that the command offers: one record each, measured in one process.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/status.h"

namespace attest {

struct BenchmarkOptions {
  bool quick = false;  // attention: few rounds; reference: an eighth of every length as well
  int rounds = 10;     // of everything, interleaved; at least 1
  std::string shape;   // attention: this shape alone (ParseShape); empty: those of the table
  std::uint64_t seed = 0;
  std::string command;  // for the manifest
  std::function<void(std::size_t done, std::size_t all)> progress;
};

struct Benchmark {
  std::string name;
  std::string question;
  // The record ("attest_bench": 1), or why there is none.
  StatusOr<nlohmann::ordered_json> (*run)(const BenchmarkOptions& options);
};

const std::vector<Benchmark>& Benchmarks();

// Runs one by name; NotFound, with the names that exist, for an unknown one.
StatusOr<nlohmann::ordered_json> RunBenchmark(const std::string& name,
                                              const BenchmarkOptions& options);

}  // namespace attest
