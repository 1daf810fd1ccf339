// SPDX-License-Identifier: Apache-2.0
#include "experiments/ulp_scan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "optimized/targets.h"
#include "optimized/thread_pool.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::uint64_t kBinade = std::uint64_t{1} << 23;
// Floats of a piece, the unit of work, all of one binade; pieces that are in memory at a time.
constexpr std::uint64_t kPiece = std::uint64_t{1} << 13;
constexpr std::size_t kPieces = 64;
// Arguments of the largest errors so far, to be certified in the end.
constexpr std::size_t kCandidates = 16;

// Of one subject on one piece.
struct PieceErrors {
  std::uint64_t inputs = 0;
  std::uint64_t wrong = 0;
  double largest = 0.0;
};

struct Piece {
  std::vector<float> x;
  CloseValues close;
  std::vector<std::vector<float>> y;  // by subject
  std::vector<PieceErrors> errors;    // likewise
  PieceErrors rounding;               // of the correctly rounded results, for an endless range
};

struct Candidate {
  double error = 0.0;
  float x = 0.0f;
  float got = 0.0f;

  // Larger errors first; the order of threads has no say.
  bool operator<(const Candidate& other) const {
    if (error != other.error) return error > other.error;
    return std::bit_cast<std::uint32_t>(x) < std::bit_cast<std::uint32_t>(other.x);
  }
};

struct Sums {
  UlpTally tally;
  std::vector<Candidate> worst;  // sorted

  void Keep(const Candidate& candidate) {
    worst.insert(std::upper_bound(worst.begin(), worst.end(), candidate), candidate);
    if (worst.size() > kCandidates) worst.pop_back();
  }
  bool Keeps(double error) const {
    return error > 0.0 && (worst.size() < kCandidates || error >= worst.back().error);
  }
  void Merge(const Sums& other) {
    tally.inputs += other.tally.inputs;
    tally.wrong += other.tally.wrong;
    tally.differs += other.tally.differs;
    for (std::size_t i = 0; i < tally.by_binade.size(); ++i) {
      tally.by_binade[i] = std::max(tally.by_binade[i], other.tally.by_binade[i]);
    }
    for (const Candidate& candidate : other.worst) Keep(candidate);
  }
};

// The value is at most 2^129 or -infinity; NaN and infinities by selections, not by branches.
inline double ErrorOf(double value, double inverse_ulp, float got) {
  constexpr double kOverflow = 0x1p128;
  const double exact = value > kOverflow ? kOverflow : value;
  const double wide = static_cast<double>(got);
  const double finite = wide > kOverflow ? kOverflow : wide;
  const double error = finite == exact ? 0.0 : std::fabs(finite - exact) * inverse_ulp;
  const bool both_nan = (value != value) & (got != got);
  return error == error ? error : (both_nan ? 0.0 : kInfinity);
}

inline bool IsRight(float got, float wanted) {
  return (got == wanted) | ((got != got) & (wanted != wanted));
}

bool IsUnlimited(const FunctionSubject& subject) {
  constexpr float kAll = std::numeric_limits<float>::infinity();
  return subject.lowest == -kAll && subject.highest == kAll;
}

bool Answers(const FunctionSubject& subject, float x) {
  if (IsUnlimited(subject)) return true;
  return x >= subject.lowest && x <= subject.highest;
}

using Errors = std::array<double, kPiece>;

PieceErrors Measure(const FunctionSubject& subject, const Piece& piece, const std::vector<float>& y,
                    Errors* errors) {
  const std::size_t n = y.size();
  const bool unlimited = IsUnlimited(subject);
  const double* const value = piece.close.value.data();
  const double* const inverse = piece.close.inverse_ulp.data();
  for (std::size_t i = 0; i < n; ++i) (*errors)[i] = ErrorOf(value[i], inverse[i], y[i]);
  PieceErrors sums;
  if (unlimited) {
    std::uint32_t wrong = 0;
    for (std::size_t i = 0; i < n; ++i) wrong += IsRight(y[i], piece.close.wanted[i]) ? 0u : 1u;
    sums.inputs = n;
    sums.wrong = wrong;
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      const bool answers = Answers(subject, piece.x[i]);
      (*errors)[i] = answers ? (*errors)[i] : 0.0;
      sums.inputs += answers ? 1u : 0u;
      sums.wrong += answers && !IsRight(y[i], piece.close.wanted[i]) ? 1u : 0u;
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    sums.largest = (*errors)[i] > sums.largest ? (*errors)[i] : sums.largest;
  }
  return sums;
}

std::uint64_t Differing(const FunctionSubject& subject, const std::vector<float>& x,
                        const std::vector<float>& a, const std::vector<float>& b) {
  if (std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0) return 0;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool same = std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i]) ||
                      (std::isnan(a[i]) && std::isnan(b[i]));
    count += !same && Answers(subject, x[i]) ? 1u : 0u;
  }
  return count;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// `first` is the first subject of the same library and variant. The same bits have the same errors:
// those of the first and of correct rounding, which most of a function's constant parts have, are
// not measured again.
void Add(const std::vector<FunctionSubject>& subjects, std::size_t s, std::size_t first,
         Piece* piece, Sums* sums) {
  const FunctionSubject& subject = subjects[s];
  const std::vector<float>& y = piece->y[s];
  const std::uint64_t differs = s == first ? 0 : Differing(subject, piece->x, piece->y[first], y);
  Errors errors;
  bool measured = false;
  PieceErrors& found = piece->errors[s];
  if (s != first && differs == 0) {
    found = piece->errors[first];
  } else if (IsUnlimited(subject) && SameBits(y, piece->close.wanted)) {
    found = piece->rounding;
  } else {
    found = Measure(subject, *piece, y, &errors);
    measured = true;
  }
  sums->tally.inputs += found.inputs;
  sums->tally.wrong += found.wrong;
  sums->tally.differs += differs;
  double& binade = sums->tally.by_binade[std::bit_cast<std::uint32_t>(piece->x[0]) >> 23];
  binade = std::max(binade, found.largest);
  if (!sums->Keeps(found.largest)) return;
  if (!measured) Measure(subject, *piece, y, &errors);
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (sums->Keeps(errors[i])) sums->Keep({errors[i], piece->x[i], y[i]});
  }
}

std::vector<FloatRange> PiecesOf(const std::vector<FloatRange>& ranges) {
  std::vector<FloatRange> pieces;
  for (const FloatRange& range : ranges) {
    for (std::uint64_t done = 0; done < range.count;) {
      const std::uint64_t first = range.first + done * range.stride;
      const std::uint64_t in_binade = (kBinade - first % kBinade + range.stride - 1) / range.stride;
      const std::uint64_t count = std::min({range.count - done, kPiece, in_binade});
      pieces.push_back({static_cast<std::uint32_t>(first), range.stride, count});
      done += count;
    }
  }
  return pieces;
}

// The first subject of the same library and variant.
std::size_t FirstAlike(const std::vector<FunctionSubject>& subjects, std::size_t s) {
  const auto alike = std::find_if(subjects.begin(), subjects.end(), [&](const auto& other) {
    return other.library == subjects[s].library && other.variant == subjects[s].variant;
  });
  return static_cast<std::size_t>(alike - subjects.begin());
}

class Scan {
 public:
  Scan(ExactFunction function, const std::vector<FunctionSubject>& subjects, int threads)
      : function_(function), subjects_(subjects), pool_(threads), pieces_(kPieces) {
    sums_.resize(pool_.threads(), std::vector<Sums>(subjects.size()));
    for (Piece& piece : pieces_) {
      piece.y.resize(subjects.size());
      piece.errors.resize(subjects.size());
    }
    for (std::size_t s = 0; s < subjects.size(); ++s) first_.push_back(FirstAlike(subjects, s));
  }

  Status Take(std::span<const FloatRange> ranges) {
    pool_.Run(ranges.size(), [&](std::size_t p, std::size_t /*thread*/) {
      Piece& piece = pieces_[p];
      piece.x.resize(ranges[p].count);
      for (std::size_t i = 0; i < piece.x.size(); ++i) {
        piece.x[i] = std::bit_cast<float>(
            static_cast<std::uint32_t>(ranges[p].first + i * ranges[p].stride));
      }
      EvaluateClosely(function_, piece.x, &piece.close);
      Errors errors;
      piece.rounding = Measure({}, piece, piece.close.wanted, &errors);
      FreeExactCaches();
    });
    for (std::size_t begin = 0; begin < subjects_.size();) {
      std::size_t end = begin + 1;
      while (end < subjects_.size() && subjects_[end].target == subjects_[begin].target) ++end;
      if (Status s = RunSubjects(begin, end, ranges.size()); !s.ok()) return s;
      begin = end;
    }
    return Status();
  }

  std::vector<UlpTally> Result() const {
    std::vector<UlpTally> tallies;
    for (std::size_t s = 0; s < subjects_.size(); ++s) {
      Sums all;
      for (const std::vector<Sums>& thread : sums_) all.Merge(thread[s]);
      UlpTally& tally = all.tally;
      for (const Candidate& candidate : all.worst) {
        const CertifiedError error = attest::ErrorOf(function_, candidate.x, candidate.got);
        if (!(error.ulp > tally.largest)) continue;
        tally.largest = error.ulp;
        tally.at = candidate.x;
        tally.got = candidate.got;
        tally.wanted = error.wanted;
      }
      tallies.push_back(tally);
    }
    return tallies;
  }

 private:
  Status RunSubjects(std::size_t begin, std::size_t end, std::size_t pieces) {
    std::optional<StatusOr<ScopedTarget>> target;
    if (!subjects_[begin].target.empty()) {
      target.emplace(ScopedTarget::Force(subjects_[begin].target));
      if (!target->ok()) return target->status();
    }
    pool_.Run(pieces, [&](std::size_t p, std::size_t thread) {
      Piece& piece = pieces_[p];
      for (std::size_t s = begin; s < end; ++s) {
        const FunctionSubject& subject = subjects_[s];
        piece.y[s].resize(piece.x.size());
        subject.each(piece.x.data(), piece.y[s].data(), piece.x.size());
        Add(subjects_, s, first_[s], &piece, &sums_[thread][s]);
      }
    });
    return Status();
  }

  const ExactFunction function_;
  const std::vector<FunctionSubject>& subjects_;
  ThreadPool pool_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> first_;       // by subject
  std::vector<std::vector<Sums>> sums_;  // by thread and subject
};

}  // namespace

std::vector<FloatRange> AllFloats() { return {{0, 1, std::uint64_t{1} << 32}}; }

std::vector<FloatRange> EveryFloat(std::uint32_t stride) {
  return {{stride / 2, stride, (std::uint64_t{1} << 32) / stride}};
}

FloatRange WindowAround(float x) {
  return {std::bit_cast<std::uint32_t>(x) & 0xffff0000U, 1, std::uint64_t{1} << 16};
}

StatusOr<std::vector<UlpTally>> ScanFunction(ExactFunction function,
                                             const std::vector<FunctionSubject>& subjects,
                                             const std::vector<FloatRange>& ranges, int threads,
                                             const std::function<void(std::uint64_t)>& done) {
  Scan scan(function, subjects, threads);
  const std::vector<FloatRange> pieces = PiecesOf(ranges);
  for (std::size_t begin = 0; begin < pieces.size(); begin += kPieces) {
    const std::size_t count = std::min(kPieces, pieces.size() - begin);
    const std::span<const FloatRange> some(pieces.data() + begin, count);
    if (Status s = scan.Take(some); !s.ok()) return s;
    std::uint64_t floats = 0;
    for (const FloatRange& piece : some) floats += piece.count;
    if (done) done(floats);
  }
  return scan.Result();
}

}  // namespace attest
