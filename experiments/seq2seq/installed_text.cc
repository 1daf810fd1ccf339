// SPDX-License-Identifier: Apache-2.0
// The installed translations, by the commands that print them.
#include <fmt/format.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <utility>

#include "experiments/seq2seq/parallel_text.h"

namespace attest {
namespace {

// Everything that a fixed command prints; NotFound if it cannot run, fails or prints nothing.
StatusOr<std::string> OutputOf(const char* command) {
  const Status missing = NotFound(
      fmt::format("the parallel text is not installed: '{}' fails; run `make text`", command));
  std::FILE* pipe = popen(fmt::format("{} 2>/dev/null", command).c_str(), "r");  // NOLINT: fixed
  if (pipe == nullptr) return missing;
  std::string output;
  std::array<char, 65536> buffer{};
  for (std::size_t read = 0; (read = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    output.append(buffer.data(), read);
  }
  const int status = pclose(pipe);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || output.empty()) return missing;
  return output;
}

template <class Parse>
StatusOr<std::vector<Verse>> Read(const char* command, const Parse& parse) {
  StatusOr<std::string> output = OutputOf(command);
  if (!output.ok()) return output.status();
  StatusOr<std::vector<Verse>> verses = parse(*output);
  if (verses.ok()) return verses;
  return NotFound(
      fmt::format("'{}' prints {}; run `make text`", command, verses.status().message()));
}

}  // namespace

StatusOr<std::vector<VersePair>> ReadParallelText(ParallelText which) {
  StatusOr<std::vector<Verse>> english = Read("mod2imp engWEB2015eb", ParseImp);
  if (!english.ok()) return english.status();
  if (which == ParallelText::kKingJamesToWorldEnglish) {
    StatusOr<std::vector<Verse>> old = Read("bible -l 9999 Gen1:1-Rev22:21", ParseBiblePrint);
    if (!old.ok()) return old.status();
    return JoinVerses(*old, *english);
  }
  StatusOr<std::vector<Verse>> spanish = Read("mod2imp spaRV1909eb", ParseImp);
  if (!spanish.ok()) return spanish.status();
  return JoinVerses(*english, *spanish);
}

}  // namespace attest
