// SPDX-License-Identifier: Apache-2.0
#include "audit/case_values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "reference/row_plan.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Where one element of q, k or v is: the tensor, its row-major position, and its last two axes.
struct Place {
  char tensor;
  Index flat;
  Index row;
  Index column;
  Index rows;
  Index width;
};

// +-1 times 2^-largest ... 2^largest.
double SignedPower(const RandomStream& stream, std::uint64_t index, int largest) {
  const auto choices = static_cast<std::uint64_t>(2 * largest + 1);
  const int exponent = static_cast<int>(stream.Below(index, 2 * choices) / 2) - largest;
  return std::ldexp(stream.Below(index, 2 * choices) % 2 == 0 ? 1.0 : -1.0, exponent);
}

double MantissaPattern(const FloatFormat& format, std::uint64_t pattern) {
  const double ulp = std::ldexp(1.0, 1 - format.precision);  // of 1
  switch (pattern) {
    case 0:
      return 1.0 + ulp;
    case 1:
      return 2.0 - ulp;
    case 2:
      return 4.0 / 3.0;  // 0101...
    case 3:
      return -5.0 / 3.0;  // 1010...
    case 4:
      return -(1.0 - 0.5 * ulp);
    case 5:
      return 1.5 - ulp;
    default:
      return pattern == 6 ? -1.0 : 0.5 + ulp;
  }
}

double Drawn(const CaseSpec& spec, const RandomStream& stream, const Place& at) {
  const auto index = static_cast<std::uint64_t>(at.flat);
  const bool of_v = at.tensor == 'v';
  const bool narrow = spec.dtype == DType::kF16;
  switch (spec.values) {
    case Values::kNormal:
      return stream.Normal(index);
    case Values::kOutliers: {
      const std::uint64_t extra = std::uint64_t{1} << 62;  // counters that no element uses
      const bool hit = stream.Uniform(index | extra) < 0.001;
      return stream.Normal(index) + (hit ? 10.0 * stream.Normal(index | extra << 1) : 0.0);
    }
    case Values::kSmallIntegers:
      return static_cast<double>(stream.Below(index, 7)) - 3.0;
    case Values::kTies:
      if (at.tensor != 'k') return stream.Normal(index);
      return stream.Normal(static_cast<std::uint64_t>(at.row % 3 * at.width + at.column));
    case Values::kOneHot:
      if (of_v) return static_cast<double>(stream.Below(index, 7)) - 3.0;
      return at.row % at.width == at.column ? 1.0 : 0.0;
    case Values::kSpread:
      return stream.Normal(index) * (at.column == 0 && !of_v ? 20.0 : 1.0);
    case Values::kConstantValues:
      return of_v ? stream.Normal(static_cast<std::uint64_t>(at.column)) : stream.Normal(index);
    case Values::kSubnormal:
      return stream.Normal(index) * (of_v ? 0x1p-130 : 1.0);
    case Values::kZero:
      return at.tensor == 'q' ? 0.0 : stream.Normal(index);
    case Values::kOnes:
      return of_v ? 1.0 : stream.Normal(index);
    case Values::kIdentity:
      if (of_v) return at.row % at.width == at.column ? 1.0 : 0.0;
      return stream.Normal(index);
    case Values::kExponents:
      return SignedPower(stream, index, !of_v ? 3 : (narrow ? 12 : 60));
    case Values::kMantissas:
      return MantissaPattern(FormatOf(spec.dtype), stream.Below(index, 8));
    case Values::kConstantRows:
      return stream.Normal(static_cast<std::uint64_t>(at.flat / at.width));
    case Values::kCancellation: {
      if (of_v) return stream.Normal(index);
      // Columns 2c and 2c + 1 hold a and b; q has them the other way round and one negated:
      // a b - b a, with what the second factor's rounding leaves.
      const Index pair = at.column / 2;
      const double a = 4.0 * stream.Normal(static_cast<std::uint64_t>(pair));
      const double b =
          4.0 * stream.Normal(static_cast<std::uint64_t>(pair) | std::uint64_t{1} << 32);
      const bool second = at.column % 2 == 1;
      const double nudge = 1.0 + 0.01 * stream.Normal(index);
      if (at.tensor == 'q') return second ? -a : b;
      return (second ? b : a) * (at.row % 2 == 0 ? 1.0 : nudge);
    }
    case Values::kLargeProducts:
      if (of_v) return stream.Normal(index);
      return at.tensor == 'k' && at.row % 2 == 1 ? 39.96875 : 40.0;
    case Values::kNearOverflow: {
      const double largest = FormatOf(spec.dtype).largest_finite();
      if (!of_v) return stream.Normal(index);
      const double share = 0.1 / static_cast<double>(std::max<Index>(at.rows, 1));
      return largest * share * (stream.Below(index, 2) == 0 ? 1.0 : -1.0);
    }
    case Values::kTiny:
      return stream.Normal(index) * (of_v ? 1.0 : (narrow ? 0x1p-12 : 0x1p-70));
  }
  return 0.0;
}

double DirectScore(const DirectScores& scores, Index key) {
  const double j = static_cast<double>(key);
  switch (scores.pattern) {
    case ScorePattern::kIncreasing:
      return scores.level + j * scores.step;
    case ScorePattern::kDecreasing:
      return scores.level - j * scores.step;
    case ScorePattern::kNeedle:
      return key == scores.needle ? scores.level + scores.step : scores.level;
    case ScorePattern::kZigzag:
      return key % 2 == 1 ? scores.level + scores.step : scores.level;
    case ScorePattern::kDrawn:
    case ScorePattern::kEqual:
      break;
  }
  return scores.level;
}

// `at` is [b, h, i, j] and `row` numbers the rows.
bool MaskAllows(const CaseSpec& spec, const RandomStream& stream, std::span<const Index> at,
                Index flat, Index row) {
  const Index b = at[0];
  const Index i = at[2];
  const Index j = at[3];
  const Index n = spec.shape.kv_len;
  const auto index = static_cast<std::uint64_t>(flat);
  switch (spec.mask_pattern) {
    case MaskPattern::kRandom:
      return stream.Below(index, 4) != 0;
    case MaskPattern::kNone:
    case MaskPattern::kAllTrue:
      return true;
    case MaskPattern::kAllFalse:
      return false;
    case MaskPattern::kEmptyRows:
      return i % 2 == 0;
    case MaskPattern::kHoles:
      return j % 2 == 0;
    case MaskPattern::kNotFirst:
      return j != 0;
    case MaskPattern::kOnlyFirst:
      return j == 0;
    case MaskPattern::kOnlyLast:
      return j == n - 1;
    case MaskPattern::kPrefix:
      return j < b % (n + 1);
    case MaskPattern::kSuffix:
      return j >= b % (n + 1);
    case MaskPattern::kCausalTopLeft:
      return j <= i;
    case MaskPattern::kCausalBottomRight:
      return j <= i + n - spec.shape.q_len;
    case MaskPattern::kOneKey:
      return static_cast<Index>(
                 stream.Below(static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(n))) == j;
    case MaskPattern::kByHead:
      return (j + at[1]) % 2 == 0;
  }
  return true;
}

}  // namespace

Shape BroadcastShape(const Dimensions& s, const Broadcast& broadcast) {
  return {broadcast.batch ? 1 : s.batch, broadcast.heads ? 1 : s.q_heads,
          broadcast.queries ? 1 : s.q_len, broadcast.keys ? 1 : s.kv_len};
}

Tensor DrawOperand(const CaseSpec& spec, char name, const Shape& shape,
                   const RandomStream& stream) {
  Tensor tensor(spec.dtype, shape);
  const Index rows = shape[2];
  const Index width = shape[3];
  const bool direct = spec.scores.pattern != ScorePattern::kDrawn && name != 'v';
  for (Index flat = 0; flat < tensor.size(); ++flat) {
    const Index row = flat / width % rows;
    const Index column = flat % width;
    if (!direct) {
      tensor.Set(flat, Drawn(spec, stream, {name, flat, row, column, rows, width}));
    } else if (column == 0) {
      tensor.Set(flat, name == 'q' ? 1.0 : DirectScore(spec.scores, row));
    }
  }
  return tensor;
}

Tensor DrawNormal(DType dtype, const Shape& shape, const RandomStream& stream, double factor) {
  Tensor tensor(dtype, shape);
  for (Index i = 0; i < tensor.size(); ++i) {
    tensor.Set(i, factor * stream.Normal(static_cast<std::uint64_t>(i)));
  }
  return tensor;
}

Tensor DrawMask(const CaseSpec& spec, const RandomStream& stream) {
  Tensor mask(DType::kBool, BroadcastShape(spec.shape, spec.mask_broadcast));
  const Index keys = std::max<Index>(mask.shape()[3], 1);
  for (Index flat = 0; flat < mask.size(); ++flat) {
    const std::vector<Index> at = Unflatten(flat, mask.shape());
    mask.Set(flat, MaskAllows(spec, stream, at, flat, flat / keys) ? 1.0 : 0.0);
  }
  return mask;
}

Tensor DrawBias(const CaseSpec& spec, DType dtype, const RandomStream& stream) {
  Tensor bias(dtype, BroadcastShape(spec.shape, spec.bias_broadcast));
  const double far = dtype == DType::kF16 ? -60000.0 : -1e30;
  for (Index flat = 0; flat < bias.size(); ++flat) {
    const auto index = static_cast<std::uint64_t>(flat);
    double value = 0.0;
    switch (spec.bias_pattern) {
      case BiasPattern::kNone:
        break;
      case BiasPattern::kNormal:
        value = stream.Normal(index);
        break;
      case BiasPattern::kExcluding:
        value = stream.Below(index, 4) == 0 ? -kInfinity : 0.0;
        break;
      case BiasPattern::kLarge:
        value = 30.0 * stream.Normal(index);
        break;
      case BiasPattern::kFarBelow:
        value = flat % 2 == 1 ? far : 0.0;
        break;
    }
    bias.Set(flat, value);
  }
  return bias;
}

Tensor DrawDocuments(const CaseSpec& spec, bool of_keys) {
  const Index length = of_keys ? spec.shape.kv_len : spec.shape.q_len;
  Tensor ids(DType::kI32, {spec.shape.batch, length});
  for (Index flat = 0; flat < ids.size(); ++flat) {
    const Index at = flat % length;
    Index id = 0;
    switch (spec.documents) {
      case Documents::kNone:
        break;
      case Documents::kBlocks:
        id = at * 3 / length;
        break;
      case Documents::kInterleaved:
        id = at % 2;
        break;
      case Documents::kApart:
        id = of_keys || at > 0 ? 5 : 6;
        break;
    }
    ids.Set(flat, static_cast<double>(id));
  }
  return ids;
}

void FillInvisibleKeys(Case* problem) {
  const StatusOr<CaseData> data = CaseData::Make(*problem);
  if (!data.ok()) return;
  const Dimensions& s = problem->contract.shape;
  const Index group = s.q_heads / s.kv_heads;
  const double fills[] = {kNaN, kInfinity, -kInfinity};
  std::vector<Index> invisible;  // rows of k and v
  for (Index row = 0; row < s.batch * s.kv_heads * s.kv_len; ++row) {
    const Index b = row / (s.kv_heads * s.kv_len);
    const Index g = row / s.kv_len % s.kv_heads;
    bool seen = false;
    for (Index h = g * group; h < (g + 1) * group; ++h) {
      for (Index i = 0; i < s.q_len && !seen; ++i) seen = data->Allowed({b, h, i}, row % s.kv_len);
    }
    if (!seen) invisible.push_back(row);
  }
  for (const char* name : {"k", "v"}) {
    Tensor& tensor = problem->tensors.at(name);
    const Index width = tensor.shape()[3];
    for (const Index row : invisible) {
      for (Index c = 0; c < width; ++c) tensor.Set(row * width + c, fills[(row + c) % 3]);
    }
  }
}

}  // namespace attest
