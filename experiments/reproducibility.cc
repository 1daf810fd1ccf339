// SPDX-License-Identifier: Apache-2.0
// Who gives the same bits over runs, threads, batches and SIMD targets, and what that costs.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <memory>
#include <set>

#include "audit/builtin.h"
#include "audit/case_spec.h"
#include "audit/peer_subjects.h"
#include "core/digest.h"
#include "experiments/bit_comparison.h"
#include "experiments/experiment.h"
#include "experiments/record.h"
#include "optimized/kernels.h"
#include "optimized/targets.h"
#include "optimized/thread_pool.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kPrintedDigest = 12;
constexpr const char* kDeclines = "\u2013";

// "same", "17 of 4608 differ", or a dash where nothing was compared.
std::string TextOf(const BitCount& count) {
  if (count.compared == 0) return kDeclines;
  if (count.differ == 0) return "same";
  return fmt::format("{} of {} differ", count.differ, count.compared);
}

bool Differs(const BitReport& report, Variation variation) {
  return report.counts[static_cast<std::size_t>(variation)].differ > 0;
}

// Whether what was seen is what `info` declares: the same bits for the same call, and for rows
// whatever else is in the call.
bool KeepsItsWord(const SubjectInfo& info, const BitReport& report) {
  const bool repeats = !Differs(report, Variation::kRun) && !Differs(report, Variation::kThreads);
  const bool invariant = !Differs(report, Variation::kBatch) && !Differs(report, Variation::kQuery);
  return (repeats || !info.deterministic) && (invariant || !info.batch_invariant);
}

std::string PromiseOf(const SubjectInfo& info) {
  if (info.batch_invariant) return "a row's bits are its own";
  return info.deterministic ? "the same call, the same bits" : "nothing";
}

ordered_json RowOf(const SubjectInfo& info, const std::string& promise, const BitReport& report) {
  ordered_json row = {info.name, promise};
  for (const BitCount& count : report.counts) row.push_back(TextOf(count));
  return row;
}

// A built-in kernel on all targets.
struct KernelReport {
  Mode mode = Mode::kFast;
  SubjectInfo info;                  // of the kernel, without a target
  std::vector<std::string> digests;  // by target
  BitReport total;                   // counts over the targets
};

// All kernels but the specimens, those of one target side by side.
Status CompareKernels(const std::vector<Case>& cases, const ExperimentOptions& options,
                      std::size_t all, std::vector<KernelReport>* kernels) {
  for (const KernelInfo& kernel : Kernels()) {
    if (kernel.specimen) continue;
    KernelReport report;
    report.mode = kernel.mode;
    report.info.name = kernel.name;
    kernels->push_back(std::move(report));
  }
  ThreadPool pool(options.threads);
  const std::vector<std::string_view> targets = RunnableTargets();
  for (std::size_t t = 0; t < targets.size(); ++t) {
    const StatusOr<ScopedTarget> target = ScopedTarget::Force(targets[t]);
    if (!target.ok()) return target.status();
    std::vector<Status> statuses(kernels->size());
    pool.Run(kernels->size(), [&](std::size_t k, std::size_t /*thread*/) {
      KernelReport& kernel = (*kernels)[k];
      const std::string name = kernel.info.name;
      const StatusOr<std::unique_ptr<Subject>> subject =
          MakeBuiltinSubject(fmt::format("{}@{}", name, targets[t]));
      if (!subject.ok()) {
        statuses[k] = subject.status();
        return;
      }
      const BitReport report = CompareBits(**subject, cases);
      if (!report.failure.empty()) statuses[k] = Internal(name + ": " + report.failure);
      kernel.info = (*subject)->info();
      kernel.info.name = name;
      kernel.digests.push_back(report.digest);
      for (std::size_t i = 0; i < report.counts.size(); ++i) {
        kernel.total.counts[i].compared += report.counts[i].compared;
        kernel.total.counts[i].differ += report.counts[i].differ;
      }
    });
    for (const Status& status : statuses) {
      if (!status.ok()) return status;
    }
    if (options.progress) options.progress(kernels->size() * (t + 1) / targets.size(), all);
  }
  return Status();
}

double ThreadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Processor time of `mode` over that of kFast: the least of some interleaved calls of each.
StatusOr<double> PriceOf(AttentionAlgorithm algorithm, Mode mode, const Case& problem, int rounds) {
  AttentionArgs args;
  args.q = InputOf<4>(problem.tensors.at("q"));
  args.k = InputOf<4>(problem.tensors.at("k"));
  args.v = InputOf<4>(problem.tensors.at("v"));
  Tensor out(problem.contract.out_dtype, problem.tensors.at("q").shape());
  AttentionOutputs outputs;
  outputs.out = OutputOf<4>(out);
  Execution execution(1);
  double least[2] = {std::numeric_limits<double>::infinity(),
                     std::numeric_limits<double>::infinity()};
  for (int round = 0; round < rounds; ++round) {
    for (const bool priced : {false, true}) {
      const double start = ThreadSeconds();
      const Status status =
          AttentionForward(priced ? mode : Mode::kFast, algorithm, args, outputs, execution);
      if (!status.ok()) return status;
      least[priced ? 1 : 0] = std::min(least[priced ? 1 : 0], ThreadSeconds() - start);
    }
  }
  return least[1] / least[0];
}

// "AVX3 1.02 and 1.05, AVX2 ..." : prefill and decode, quick on the best target alone.
StatusOr<std::string> Prices(Mode mode, bool quick, std::uint64_t seed) {
  CaseSpec prefill;
  prefill.shape = {1, 2, 2, 512, 512, 64, 64, 64};
  CaseSpec decode;
  decode.shape = {1, 8, 8, 1, 4096, 64, 64, 64};
  std::string text;
  std::vector<std::string_view> targets = RunnableTargets();
  if (quick) targets.resize(1);
  for (const std::string_view name : targets) {
    const StatusOr<ScopedTarget> target = ScopedTarget::Force(name);
    if (!target.ok()) return target.status();
    const int rounds = quick ? 5 : 30;
    const StatusOr<double> tiled =
        PriceOf(AttentionAlgorithm::kTiled, mode, MakeCase(prefill, seed), rounds);
    if (!tiled.ok()) return tiled.status();
    const StatusOr<double> one =
        PriceOf(AttentionAlgorithm::kDecode, mode, MakeCase(decode, seed), rounds);
    if (!one.ok()) return one.status();
    text += fmt::format("{}{} {:.2f} and {:.2f}", text.empty() ? "" : ", ", name, *tiled, *one);
  }
  return text;
}

}  // namespace

StatusOr<ordered_json> RunReproducibility(const ExperimentOptions& options) {
  const std::vector<Case> cases = ComparedCases(!options.quick, options.seed);
  const std::vector<std::string_view> targets = RunnableTargets();
  std::vector<PeerEntry> peers;
  for (const PeerEntry& peer : Peers()) {
    if (peer.missing.empty()) peers.push_back(peer);
  }

  ordered_json digest_rows = ordered_json::array();
  ordered_json kernel_rows = ordered_json::array();
  ordered_json peer_rows = ordered_json::array();
  ordered_json notes = ordered_json::array();
  bool reproducible_holds = true;
  bool others_hold = true;
  int reproducible = 0;
  int compared_peers = 0;
  int faithless_peers = 0;
  const std::size_t all = Kernels().size() + peers.size();
  std::vector<KernelReport> kernels;
  if (Status s = CompareKernels(cases, options, all, &kernels); !s.ok()) return s;
  for (const KernelReport& kernel : kernels) {
    const bool promised = kernel.mode == Mode::kReproducible;
    ordered_json digests = {kernel.info.name};
    std::set<std::string> different;
    for (const std::string& digest : kernel.digests) {
      digests.push_back(digest.substr(0, kPrintedDigest));
      different.insert(digest);
    }
    digests.push_back(different.size());
    digest_rows.push_back(std::move(digests));
    kernel_rows.push_back(RowOf(kernel.info,
                                promised ? "one digest on every target" : PromiseOf(kernel.info),
                                kernel.total));
    const bool keeps = KeepsItsWord(kernel.info, kernel.total);
    if (promised) {
      ++reproducible;
      reproducible_holds = reproducible_holds && keeps && different.size() == 1 &&
                           !Differs(kernel.total, Variation::kPadding);
    } else {
      others_hold = others_hold && keeps;
    }
  }

  // Each in a process of its own, so side by side.
  std::vector<std::unique_ptr<Subject>> subjects(peers.size());
  std::vector<BitReport> reports(peers.size());
  ThreadPool pool(options.threads);
  pool.Run(peers.size(), [&](std::size_t i, std::size_t /*thread*/) {
    StatusOr<std::unique_ptr<Subject>> subject = MakePeerSubject(peers[i].name, ProcessLimits{});
    if (!subject.ok()) {
      reports[i].failure = subject.status().message();
      return;
    }
    subjects[i] = *std::move(subject);
    reports[i] = CompareBits(*subjects[i], cases);
  });
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (!reports[i].failure.empty()) {
      notes.push_back(fmt::format("Left out: {}: {}", peers[i].name, reports[i].failure));
      continue;
    }
    const SubjectInfo& info = subjects[i]->info();
    ++compared_peers;
    faithless_peers += KeepsItsWord(info, reports[i]) ? 0 : 1;
    peer_rows.push_back(RowOf(info, PromiseOf(info), reports[i]));
  }
  others_hold = others_hold && faithless_peers == 0;
  if (options.progress) options.progress(all, all);

  ordered_json record = NewRecord(
      {.name = "reproducibility",
       .title = "The same bits, whatever else is in the call",
       .claim = "Kernels can give a row the same bits for every batch, number of threads, split of "
                "the keys and SIMD target; libraries in use do not.",
       .source = "Thinking Machines 2025, Defeating Nondeterminism in LLM Inference: 80 different "
                 "completions of 1000 at temperature 0, one with batch-invariant kernels, which "
                 "take 1.6 to 2.1 times as long.",
       .rule = "Reproduced if every kernel of mode Reproducible gives one digest on all SIMD "
               "targets and no element that differs over runs, threads, batches, queries and "
               "padding, every other implementation keeps what it declares, and some peer differs "
               "in one of these; with limits if only the last two fail; else refuted."});
  bool peer_differs = false;
  for (const ordered_json& row : peer_rows) {
    for (std::size_t i = 2; i < row.size(); ++i) {
      peer_differs = peer_differs || (row[i] != "same" && row[i] != kDeclines);
    }
  }
  record["verdict"] = !reproducible_holds           ? "refuted"
                      : others_hold && peer_differs ? "reproduced"
                                                    : "reproduced with limits";
  record["summary"] = fmt::format(
      "{} kernels of mode Reproducible {} one digest each on {} targets, whatever the run, "
      "threads, "
      "batch, queries and padding. {} peers compared, {}; {} of them break a promise.",
      reproducible, reproducible_holds ? "give" : "do NOT give", targets.size(), compared_peers,
      peer_differs ? "some of which differ" : "none of which differs", faithless_peers);

  ordered_json digest_columns = {"kernel"};
  for (const std::string_view target : targets) digest_columns.push_back(target);
  digest_columns.push_back("different digests");
  ordered_json columns = {"implementation", "promise"};
  for (const Variation variation : kVariations) columns.push_back(NameOf(variation));
  record["tables"] = {
      {{"title", "Digests by SIMD target"},
       {"note", "SHA-256, first 12 digits, of the outputs of all calls."},
       {"columns", digest_columns},
       {"rows", digest_rows}},
      {{"title", "Kernels, over all targets"},
       {"note",
        "Elements that differ in a bit from those of the call as it is, on one thread; a dash: not "
        "taken. Padding: keys behind a sequence's length are cut off."},
       {"columns", columns},
       {"rows", kernel_rows}},
      {{"title", "Peers"},
       {"note", "Those that are installed (docs/peers.md)."},
       {"columns", columns},
       {"rows", peer_rows}}};
  std::string inputs;
  for (const Case& problem : cases) inputs += Sha256(problem.tensors);
  AddManifest(options, Sha256(std::as_bytes(std::span(inputs))), &record);
  // Times differ from run to run: no table has them.
  for (const Mode mode : {Mode::kReproducible, Mode::kAccurate}) {
    const StatusOr<std::string> prices = Prices(mode, options.quick, options.seed);
    if (!prices.ok()) return prices.status();
    notes.push_back(fmt::format(
        "Processor time of mode {} over mode Fast, prefill of 512 queries and decode against 4096 "
        "keys: {}. (Published for invariant kernels on a GPU, whole model: 1.6 to 2.1.)",
        mode == Mode::kReproducible ? "Reproducible" : "Accurate", *prices));
  }
  notes.push_back(
      "Which numbers differ depends on the libraries that are installed and on the processor; the "
      "kernels' digests of mode Reproducible do not.");
  record["notes"] = std::move(notes);
  return record;
}

}  // namespace attest
