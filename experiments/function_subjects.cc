// SPDX-License-Identifier: Apache-2.0
#include "experiments/function_subjects.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string_view>

#include "experiments/highway_functions.h"
#include "optimized/functions.h"
#include "optimized/targets.h"
#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

namespace attest {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kLeast = std::numeric_limits<float>::denorm_min();
constexpr Mode kModes[] = {Mode::kFast, Mode::kReproducible, Mode::kAccurate};

template <float (*kFunction)(float)>
void OneByOne(const float* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] = kFunction(x[i]);
}

FunctionSubject OurSubject(const std::string& name, OurEach each, Mode mode,
                           std::string_view target) {
  FunctionSubject subject;
  subject.library = "Attest";
  subject.variant = fmt::format("{}, {}", name, NameOf(mode));
  subject.target = target;
  subject.each = [each, mode](const float* x, float* y, std::size_t n) { each(mode, x, y, n); };
  if (each == OurEach{SoftmaxExp2Each}) {
    subject.highest = 127.5f;
    if (mode == Mode::kFast) subject.lowest = std::nextafter(-126.5f, 0.0f);  // below may flush
  }
  return subject;
}

}  // namespace

const std::vector<FunctionQuestion>& FunctionQuestions() {
  static const std::vector<FunctionQuestion> questions{
      {ExactFunction::kExp,
       {{"exp", ExpEach}},
       HighwayExpEach,
       -kLargest,
       104.0f,
       OneByOne<std::exp>,
       "expf",
       "0.502",
       170635,
       {-0x1.ce651ep-8f, -0x1.79050cp+2f, 0x1.e00788p+5f, -0x1.5ed25p+6f, -0x1.5ebab8p+6f,
        -0x1.787e06p+2f, -0x1.78b05ep+2f}},
      {ExactFunction::kExp2,
       {{"2^x", Exp2Each}, {"2^x in softmax", SoftmaxExp2Each}},
       nullptr,
       0.0f,
       0.0f,
       OneByOne<std::exp2>,
       "exp2f",
       "0.502",
       168353,
       {-0x1.4795f8p-7f, -0x1.fc993ap-2f, 0x1.22516ep-1f, -0x1.f9cf08p+6f, -0x1.fa3facp+6f,
        -0x1.f9fc6ap+6f, 0x1.fe3a54p-2f, -0x1.f98784p+6f, -0x1.fa41d6p+6f}},
      {ExactFunction::kLog,
       {{"ln", LogEach}},
       HighwayLogEach,
       kLeast,
       kLargest,
       OneByOne<std::log>,
       "logf",
       "0.818",
       0,
       {0x1.060106p+0f, 0x1.69cf3ep+0f, 0x1.48ace6p+0f, 0x1.65e622p-1f, 0x1.4785cap+0f,
        0x1.69bdbap-1f}},
      {ExactFunction::kTanh,
       {{"tanh", TanhEach}},
       HighwayTanhEach,
       -kLargest,
       kLargest,
       OneByOne<std::tanh>,
       "tanhf",
       "2.19",
       0,
       {0x1.ddca18p-3f, 0x1.ff7a42p-5f, 0x1.656186p-3f, 0x1.65aabep-3f}},
  };
  return questions;
}

std::string CLibrary() {
#if defined(__GLIBC__)
  return fmt::format("glibc {}", gnu_get_libc_version());
#else
  return "C library";
#endif
}

std::vector<FunctionSubject> SubjectsOf(const FunctionQuestion& question) {
  std::vector<FunctionSubject> subjects;
  for (const std::string_view target : RunnableTargets()) {
    for (const auto& [name, each] : question.ours) {
      for (const Mode mode : kModes) subjects.push_back(OurSubject(name, each, mode, target));
    }
    if (question.highway == nullptr) continue;
    subjects.push_back({"Highway", std::string(NameOf(question.function)), std::string(target),
                        question.highway, question.highway_lowest, question.highway_highest});
  }
  subjects.push_back({CLibrary(), question.c_name, "", question.c_library});
  return subjects;
}

bool TakesLong(const FunctionSubject& subject) {
  if (subject.target.empty() || subject.target.starts_with("AVX")) return false;
  return subject.target != "SSE4" || subject.variant.ends_with("reproducible");
}

}  // namespace attest
