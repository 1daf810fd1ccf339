// SPDX-License-Identifier: Apache-2.0
// rapidcheck generators of attention cases by structure, shrinking toward few, short and plain.
#pragma once

#include <rapidcheck.h>

#include <ostream>
#include <string>

#include "audit/case_spec.h"

namespace attest {

// A drawn case: its specification and the seed of its numbers.
struct DrawnCase {
  CaseSpec spec;
  std::uint64_t seed = 0;
};

inline std::ostream& operator<<(std::ostream& stream, const DrawnCase& drawn) {
  return stream << NameOf(drawn.spec) << ", seed " << drawn.seed;
}

// Lengths near 1 and near the ends of vectors and blocks; shrinks toward the smallest.
inline rc::Gen<Index> LengthUpTo(Index largest) {
  return rc::gen::map(rc::gen::inRange<Index>(0, 1000), [largest](Index draw) {
    const Index edges[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65};
    Index length = draw < 17 ? edges[draw] : draw % largest + 1;
    return length > largest ? length % largest + 1 : length;
  });
}

// rapidcheck's ranges grow with its size parameter, which starts at 0: early draws would all be the
// smallest case. Every draw uses the full size instead; failing cases still shrink.
inline rc::Gen<DrawnCase> ArbitraryCase() {
  return rc::gen::resize(
      rc::kNominalSize, rc::gen::exec([] {
        DrawnCase drawn;
        CaseSpec& spec = drawn.spec;
        Dimensions& s = spec.shape;
        s.batch = *rc::gen::inRange<Index>(1, 3);
        s.kv_heads = *rc::gen::inRange<Index>(1, 3);
        s.q_heads = s.kv_heads * *rc::gen::inRange<Index>(1, 3);
        s.q_len = *LengthUpTo(9);
        s.kv_len = *LengthUpTo(40);
        s.qk_dim = s.k_dim = *LengthUpTo(20);
        s.v_dim = *LengthUpTo(20);
        spec.values = *rc::gen::element(Values::kNormal, Values::kSmallIntegers, Values::kOneHot,
                                        Values::kTies, Values::kZero, Values::kConstantValues,
                                        Values::kOutliers, Values::kSpread, Values::kSubnormal);
        spec.causal = *rc::gen::element(Causal::kNone, Causal::kTopLeft, Causal::kBottomRight);
        spec.empty_row =
            *rc::gen::element(EmptyRow::kZero, EmptyRow::kZero, EmptyRow::kNan, EmptyRow::kUniform);
        if (*rc::gen::inRange(0, 4) == 3) spec.scale = {false, 1.0};
        spec.mask = *rc::gen::inRange(0, 3) == 2;
        spec.bias = *rc::gen::inRange(0, 3) == 2;
        spec.kv_lengths = *rc::gen::inRange(0, 3) == 2;
        spec.q_lengths = *rc::gen::inRange(0, 4) == 3;
        drawn.seed = *rc::gen::inRange<std::uint64_t>(0, 1000000);
        return drawn;
      }));
}

// The same with any of the other features: each is absent in most draws, so that one case combines
// a few.
inline rc::Gen<DrawnCase> ArbitraryFeatures() {
  return rc::gen::resize(
      rc::kNominalSize, rc::gen::exec([] {
        DrawnCase drawn = *ArbitraryCase();
        CaseSpec& spec = drawn.spec;
        const auto rarely = [] { return *rc::gen::inRange(0, 4) == 3; };
        spec.dtype =
            *rc::gen::element(DType::kF32, DType::kF32, DType::kF64, DType::kBF16, DType::kF16);
        if (rarely()) {
          spec.window = {*rc::gen::inRange<Index>(-1, 6), *rc::gen::inRange<Index>(-1, 6)};
        }
        if (rarely()) {
          spec.documents = *rc::gen::element(Documents::kBlocks, Documents::kInterleaved,
                                             Documents::kApart, Documents::kWide);
        }
        const auto broadcast = [] {
          const auto bits = *rc::gen::inRange(0, 16);
          return Broadcast{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
        };
        if (!spec.mask && rarely()) {
          spec.mask_pattern = *rc::gen::element(MaskPattern::kRandom, MaskPattern::kEmptyRows,
                                                MaskPattern::kHoles, MaskPattern::kNotFirst,
                                                MaskPattern::kOnlyLast, MaskPattern::kOneKey);
          spec.mask_broadcast = broadcast();
        }
        if (!spec.bias && rarely()) {
          spec.bias_pattern = *rc::gen::element(BiasPattern::kNormal, BiasPattern::kExcluding,
                                                BiasPattern::kLarge, BiasPattern::kFarBelow);
          spec.bias_broadcast = broadcast();
        }
        if (rarely()) {
          spec.alibi = *rc::gen::element(Alibi::kDefault, Alibi::kTensor, Alibi::kNone);
        }
        if (rarely()) spec.softcap = *rc::gen::element(0.5, 2.0, 30.0);
        if (rarely()) spec.sink_level = *rc::gen::element(-200.0, 0.0, 20.0);
        if (rarely()) {
          spec.dropout_rate = *rc::gen::element(0.1, 0.5);
          spec.keep = *rc::gen::element(Keep::kByRate, Keep::kNone);
          spec.keep_broadcast = broadcast();
        }
        if (rarely()) {
          spec.local = LocalWindow{0.5 * static_cast<double>(*rc::gen::inRange(1, 20)),
                                   *rc::gen::inRange(0, 2) == 1};
        }
        return drawn;
      }));
}

// Reports what was drawn, so that a run whose draws are mostly trivial shows.
inline void Classify(const CaseSpec& spec) {
  RC_CLASSIFY(spec.causal != Causal::kNone, std::string("causal"));
  RC_CLASSIFY(spec.mask || spec.bias || spec.kv_lengths || spec.q_lengths, std::string("masked"));
  RC_CLASSIFY(spec.shape.q_heads != spec.shape.kv_heads, std::string("grouped heads"));
  RC_CLASSIFY(spec.shape.kv_len > 8, std::string("more keys than a vector"));
  RC_CLASSIFY(spec.values != Values::kNormal, std::string("structured values"));
}

}  // namespace attest
