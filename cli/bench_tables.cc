// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace attest {
namespace {

using nlohmann::ordered_json;

// "rule 0%, double 99.98%, ...": rungs that settled nothing are left out.
std::string Shares(const ordered_json& counts) {
  double all = 0.0;
  for (const auto& [rung, count] : counts.items()) all += count.get<double>();
  std::string text;
  for (const auto& [rung, count] : counts.items()) {
    if (count == 0) continue;
    text += fmt::format("{}{} {:.4g}% ({})", text.empty() ? "" : ", ", rung,
                        100.0 * count.get<double>() / all, count.get<std::int64_t>());
  }
  return text;
}

void PrintReferenceRow(const ordered_json& row) {
  fmt::print("{:<24} {:<5}", row["name"].get<std::string>(), row["dtype"].get<std::string>());
  if (row.contains("unsupported")) {
    fmt::print(" unsupported: {}\n", row["unsupported"].get<std::string>());
    return;
  }
  const ordered_json& certified = row["certified"];
  if (row.contains("mpfr")) {
    fmt::print(" {:>12.0f} {:>11.1f} {:>8.0f}", row["mpfr"]["ns_per_element_min"].get<double>(),
               certified["ns_per_element_min"].get<double>(), row["ratio"].get<double>());
  } else {
    fmt::print(" {:>12} {:>11.1f} {:>8}", "-", certified["ns_per_element_min"].get<double>(), "-");
  }
  fmt::print(" {:>6} {:>8.2f} {:>6.1f}%\n", row["goal"].is_null() ? "-" : row["goal"].dump(),
             row["certified_gflops"].get<double>(), 100.0 * row["share_of_fma_peak"].get<double>());
}

void PrintReference(const ordered_json& record) {
  fmt::print("{}: {}, the least of {} round(s){}\n", record["name"].get<std::string>(),
             record["clock"].get<std::string>(), record["rounds"].get<int>(),
             record["quick"].get<bool>() ? " (quick: short inputs, figures mean little)" : "");
  fmt::print(
      "Per output element: plain MPFR of 50 digits, the certified ladder, and their ratio.\n\n");
  fmt::print("{:<24} {:<5} {:>12} {:>11} {:>8} {:>6} {:>8} {:>7}\n", "queries x keys x size",
             "type", "mpfr ns", "certify ns", "ratio", "goal", "GFLOP/s", "peak");
  for (const ordered_json& row : record["rows"]) PrintReferenceRow(row);
  fmt::print("\n");
  for (const ordered_json& row : record["rows"]) {
    if (row.contains("unsupported")) continue;
    fmt::print("{} {}: rows {}; elements {}; median {:.1f} ns\n", row["name"].get<std::string>(),
               row["dtype"].get<std::string>(), Shares(row["rows_by_rung"]),
               Shares(row["elements_by_rung"]),
               row["certified"]["ns_per_element_median"].get<double>());
  }
  fmt::print("\nPeak of double multiply-adds on {}: {:.1f} GFLOP/s (median of the rounds {:.1f})\n",
             record["manifest"]["simd_target"].get<std::string>(),
             record["fma_peak_gflops"].get<double>(),
             record["fma_peak_gflops_median"].get<double>());
  if (!record["mpfr"].get<bool>()) {
    fmt::print("The comparison needs MPFR, which this build was configured without.\n");
  }
}

void PrintFloors(const ordered_json& record) {
  fmt::print("{:<8} {:>12} {:>12} {:>8} {:>10} {:>10} {:>10} {:>10}\n", "Floors", "f32 GFLOP/s",
             "f64 GFLOP/s", "Gexp/s", "copy GB/s", "4096x4096", "read GB/s", "64 MB");
  for (const auto& floors : record["floors"].items()) {
    const ordered_json& rates = floors.value();
    const auto rate = [&](const char* name) { return rates[name].get<double>(); };
    fmt::print("{:<8} {:>12.1f} {:>12.1f} {:>8.2f} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f}\n",
               floors.key(), rate("fma_f32_gflops"), rate("fma_f64_gflops"), rate("exp_gexps"),
               rate("copy_256mb_gbps"), rate("copy_4096x4096_gbps"), rate("read_256mb_gbps"),
               rate("read_64mb_gbps"));
  }
}

void PrintKernelRow(const ordered_json& row) {
  fmt::print("{:<34} {:<17} {:<7} {:>8.3f} {:>8.1f} {:>6.1f} {:>6.1f}%",
             row["kernel"].get<std::string>(), row["shape"].get<std::string>(),
             row["target"].get<std::string>(), 1e3 * row["seconds_min"].get<double>(),
             row["gflops"].get<double>(), row["gbytes_per_second"].get<double>(),
             100.0 * row["share_of_floor"].get<double>());
  if (row.contains("speed_over_fast_f32")) {
    fmt::print(" {:>5.2f}", row["speed_over_fast_f32"].get<double>());
  }
  fmt::print("\n");
}

// Times of the peers over ours: a line for each peer, a column for each shape that has some.
void PrintPeers(const ordered_json& record) {
  std::vector<const ordered_json*> rows;
  std::vector<std::string> peers;
  for (const ordered_json& row : record["rows"]) {
    if (row["vs"].empty()) continue;
    rows.push_back(&row);
    for (const auto& [peer, ratio] : row["vs"].items()) {
      if (std::find(peers.begin(), peers.end(), peer) == peers.end()) peers.push_back(peer);
    }
  }
  fmt::print("\nTime of a peer over ours, same run; columns:\n");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    fmt::print("  ({}) {}\n", i + 1, (*rows[i])["shape"].get<std::string>());
  }
  fmt::print("{:<24}", "");
  for (std::size_t i = 0; i < rows.size(); ++i) fmt::print(" {:>8}", fmt::format("({})", i + 1));
  fmt::print(" {:>10}\n", "difference");
  for (const std::string& peer : peers) {
    fmt::print("{:<24}", peer);
    double difference = 0.0;
    for (const ordered_json* row : rows) {
      const ordered_json& vs = (*row)["vs"];
      fmt::print(" {:>8}", vs.contains(peer) ? fmt::format("{:.2f}", vs[peer].get<double>()) : "-");
      if (!vs.contains(peer)) continue;
      const ordered_json& found = (*row)["peer_differences"][peer];
      const double value = found.is_number() ? found.get<double>() : std::nan("");
      if (!(value <= difference)) difference = value;
    }
    fmt::print(" {:>10.1e}\n", difference);
  }
  fmt::print("Difference: the largest of an output element from ours. Peers, one thread each:\n");
  for (const ordered_json& peer : record["peers"]) {
    const char* member = peer.contains("missing") ? "missing" : "version";
    std::string text = peer[member].get<std::string>();
    constexpr std::size_t kWidth = 70;
    if (text.size() > kWidth) text = text.substr(0, kWidth - 3) + "...";
    fmt::print("  {:<13} {}{}\n", peer["library"].get<std::string>(),
               peer.contains("missing") ? "missing: " : "", text);
  }
}

void PrintAttention(const ordered_json& record) {
  fmt::print("attention: {}, the least of at most {} round(s){}\n\n",
             record["clock"].get<std::string>(), record["rounds"].get<int>(),
             record["quick"].get<bool>() ? " (quick)" : "");
  PrintFloors(record);
  fmt::print("\n{:<34} {:<17} {:<7} {:>8} {:>8} {:>6} {:>7} {:>5}\n", "kernel", "shape", "target",
             "ms", "GFLOP/s", "GB/s", "floor", "fast");
  for (const ordered_json& row : record["rows"]) PrintKernelRow(row);
  fmt::print("floor: its time over ours; fast: speed over the fast f32 kernel.\n");
  PrintPeers(record);
  if (record.contains("scaling")) {
    const ordered_json& scaling = record["scaling"];
    fmt::print("\nTime grows with length^{:.3f} from {} to {}.\n",
               scaling["exponent"].get<double>(), scaling["lengths"].front().get<int>(),
               scaling["lengths"].back().get<int>());
  }
  if (record.contains("threads")) {
    fmt::print("Two threads: {:.2f} times as fast as one, {}.\n",
               record["threads"]["speed_up"].get<double>(),
               record["threads"]["shape"].get<std::string>());
  }
}

}  // namespace

void PrintBenchmark(const ordered_json& record) {
  if (record["name"] == "attention") {
    PrintAttention(record);
  } else {
    PrintReference(record);
  }
}

}  // namespace attest
