// SPDX-License-Identifier: Apache-2.0
#include "audit/shrink.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "audit/case_slice.h"

namespace attest {
namespace {

// Chunks of one size that an axis or tensor is tried without in one pass: where every entry is
// needed (a sum that stagnates after thousands of keys), trying all would use up the calls.
constexpr Index kMostChunks = 64;
// Tensors up to this size are simplified element by element.
constexpr Index kMostElements = 64;

// What a number costs to read: 0 for 0, little for 1, more for every further bit and for magnitude.
double Complexity(double x) {
  if (x == 0.0) return 0.0;
  if (!std::isfinite(x)) return 1000.0;
  int exponent = 0;
  double fraction = std::abs(std::frexp(x, &exponent));
  int bits = 0;
  for (; fraction != 0.0; ++bits) {
    fraction *= 2.0;
    fraction -= std::floor(fraction);
  }
  return bits + 0.25 * std::abs(exponent - 1) + (x < 0.0 ? 0.5 : 0.0);
}

// `x` with this many significant bits.
double Rounded(double x, int bits) {
  if (x == 0.0 || !std::isfinite(x)) return x;
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

class Search {
 public:
  Search(const Case& failing, const std::function<bool(const Case&)>& still_fails,
         const ShrinkLimits& limits)
      : best_(failing),
        still_fails_(still_fails),
        limits_(limits),
        start_(std::chrono::steady_clock::now()) {}

  Case Run() {
    bool better = true;
    while (better && !OutOfBudget()) {
      better = DropFeatures();
      better = DropEntries() || better;
      better = DropBroadcastAxes() || better;
      better = SimplifyNumbers() || better;
    }
    return std::move(best_);
  }

 private:
  bool OutOfBudget() const {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    return calls_ >= limits_.calls || elapsed.count() >= limits_.seconds;
  }

  // Takes the candidate when it is a case that fails.
  bool Try(Case candidate) {
    if (OutOfBudget() || !FinishCase(&candidate).ok()) return false;
    ++calls_;
    const bool fails = still_fails_(candidate);
    if (limits_.progress) limits_.progress(calls_);
    if (fails) best_ = std::move(candidate);
    return fails;
  }

  // The case without some tensors, and without the gradients of them.
  Case Without(std::initializer_list<const char*> names) const {
    Case candidate = best_;
    for (const char* name : names) {
      candidate.tensors.erase(name);
      std::erase(candidate.contract.outputs, std::string("grad_") + name);
    }
    if (candidate.Find("grad_out") == nullptr && candidate.Find("grad_lse") == nullptr) {
      std::erase_if(candidate.contract.outputs,
                    [](const std::string& output) { return output.starts_with("grad_"); });
    }
    if (candidate.contract.outputs.empty()) candidate.contract.outputs = {"out"};
    return candidate;
  }

  bool DropTensor(std::initializer_list<const char*> names,
                  const std::function<void(Contract&)>& also = nullptr) {
    if (best_.Find(*names.begin()) == nullptr) return false;
    Case candidate = Without(names);
    if (also) also(candidate.contract);
    return Try(std::move(candidate));
  }

  // Tries a change of the contract that is not made yet.
  template <class T>
  bool SetField(T Contract::* field, const T& value, bool is_set) {
    if (is_set) return false;
    Case candidate = best_;
    candidate.contract.*field = value;
    return Try(std::move(candidate));
  }

  bool DropFeatures() {
    bool better = DropTensor({"mask"});
    better = DropTensor({"bias"}) || better;
    better = DropTensor({"keep"}, [](Contract& c) { c.dropout_rate = 0.0; }) || better;
    better = DropTensor({"keep"}) || better;
    better = DropTensor({"kv_lengths"}) || better;
    better = DropTensor({"q_lengths"}) || better;
    better = DropTensor({"q_documents", "kv_documents"}) || better;
    better = DropTensor({"sinks"}) || better;
    better = DropTensor({"alibi_slopes"}, [](Contract& c) { c.alibi = Alibi::kUnset; }) || better;
    better = DropTensor({"local_center"}, [](Contract& c) { c.local.reset(); }) || better;
    better = DropTensor({"b"}) || better;
    better = DropTensor({"grad_lse"}) || better;
    better = DropTensor({"grad_out"}) || better;
    const Contract& c = best_.contract;
    if (c.alibi != Alibi::kUnset) {
      better = SetField(&Contract::alibi, Alibi::kUnset, false) || better;
    }
    if (c.local && c.local->gaussian) {
      const std::optional<LocalWindow> plain = LocalWindow{c.local->half_width, false};
      better = SetField(&Contract::local, plain, false) || better;
    }
    better = SetField(&Contract::softcap, 0.0, c.softcap == 0.0) || better;
    better = SetField(&Contract::causal, Causal::kNone, c.causal == Causal::kNone) || better;
    better =
        SetField(&Contract::window, Window{}, c.window.left < 0 && c.window.right < 0) || better;
    better = SetField(&Contract::window, Window{c.window.left, -1}, c.window.right < 0) || better;
    better = SetField(&Contract::window, Window{-1, c.window.right}, c.window.left < 0) || better;
    better = SetField(&Contract::window, Window{std::min<Index>(c.window.left, 0), c.window.right},
                      c.window.left <= 0) ||
             better;
    better = SetField(&Contract::window, Window{c.window.left, std::min<Index>(c.window.right, 0)},
                      c.window.right <= 0) ||
             better;
    better = SetField(&Contract::softcap, 1.0, c.softcap == 0.0 || c.softcap == 1.0) || better;
    better = SetField(&Contract::dropout_rate, 0.0, c.dropout_rate == 0.0) || better;
    better =
        SetField(&Contract::empty_row, EmptyRow::kZero, c.empty_row == EmptyRow::kZero) || better;
    better = PlainScore() || better;
    const bool is_one = !c.scale.rsqrt_dk && c.scale.value == 1.0;
    better = SetField(&Contract::scale, Scale{false, 1.0}, is_one) || better;
    return DropOutputs() || better;
  }

  // `dot` in the place of another score, of as many dimensions as queries and keys both have.
  bool PlainScore() {
    const Contract& contract = best_.contract;
    if (contract.score == ScoreKind::kDot) return false;
    std::vector<Index> shared(
        static_cast<std::size_t>(std::min(contract.shape.qk_dim, contract.shape.k_dim)));
    std::iota(shared.begin(), shared.end(), Index{0});
    Case candidate =
        KeepEntries(KeepEntries(best_, CaseAxis::kQueryDims, shared), CaseAxis::kKeyDims, shared);
    candidate.contract.score = ScoreKind::kDot;
    for (const char* name : {"w", "w_q", "w_k", "b", "v_a"}) {
      candidate.tensors.erase(name);
      std::erase(candidate.contract.outputs, std::string("grad_") + name);
    }
    if (candidate.contract.outputs.empty()) return false;
    return Try(std::move(candidate));
  }

  // Each output alone, then without each.
  bool DropOutputs() {
    const std::vector<std::string> outputs = best_.contract.outputs;
    if (outputs.size() < 2) return false;
    for (const std::string& output : outputs) {
      if (SetField(&Contract::outputs, {output}, false)) return true;
    }
    bool better = false;
    for (const std::string& output : outputs) {
      std::vector<std::string> fewer = best_.contract.outputs;
      std::erase(fewer, output);
      better = SetField(&Contract::outputs, fewer, fewer.empty()) || better;
    }
    return better;
  }

  bool DropEntries() {
    bool better = false;
    for (const CaseAxis axis : {CaseAxis::kBatch, CaseAxis::kKvHeads, CaseAxis::kGroupMembers,
                                CaseAxis::kQueries, CaseAxis::kKeys, CaseAxis::kValueDims,
                                CaseAxis::kQueryDims, CaseAxis::kKeyDims, CaseAxis::kScoreUnits}) {
      for (Index chunk = Extent(best_, axis) / 2; chunk >= 1; chunk /= 2) {
        better = DropChunks(axis, chunk) || better;
      }
    }
    return better;
  }

  // From the last chunk to the first, so that what is kept stays at its place.
  bool DropChunks(CaseAxis axis, Index chunk) {
    bool better = false;
    Index tries = 0;
    for (Index end = Extent(best_, axis); end > 0 && tries < kMostChunks; end -= chunk) {
      const Index extent = Extent(best_, axis);
      const Index begin = std::max<Index>(end - chunk, 0);
      if (extent - (end - begin) < 1) break;
      std::vector<Index> entries;
      for (Index i = 0; i < extent; ++i) {
        if (i < begin || i >= end) entries.push_back(i);
      }
      better = Try(KeepEntries(best_, axis, entries)) || better;
      ++tries;
    }
    return better;
  }

  // Masks and biases that are the same for all batch entries, heads, queries or keys.
  bool DropBroadcastAxes() {
    bool better = false;
    for (const char* name : {"mask", "bias", "keep"}) {
      for (std::size_t axis = 0; axis < 4; ++axis) {
        const Tensor* tensor = best_.Find(name);
        if (tensor == nullptr || tensor->shape()[axis] < 2) continue;
        for (const Index entry : {Index{0}, tensor->shape()[axis] - 1}) {
          Case candidate = best_;
          candidate.tensors[name] = TakeEntries(*best_.Find(name), axis, {entry});
          if (!Try(std::move(candidate))) continue;
          better = true;
          break;
        }
      }
    }
    return better;
  }

  bool SimplifyNumbers() {
    bool better = false;
    std::vector<std::string> names;
    for (const auto& [name, tensor] : best_.tensors) names.push_back(name);
    for (const std::string& name : names) {
      if (!IsFloat(best_.Find(name)->dtype())) {
        better = SimplifyWhole(name) || better;
        continue;
      }
      const auto simplify = [&](const std::function<double(double)>& simpler) {
        better = Replace(name, 0, best_.Find(name)->size(), simpler) || better;
      };
      simplify([](double) { return 0.0; });
      simplify([](double) { return 1.0; });
      simplify([](double x) { return std::nearbyint(x); });
      for (const int bits : {1, 2, 4, 8}) simplify([=](double x) { return Rounded(x, bits); });
      better = SimplifyElements(name) || better;
    }
    return better;
  }

  // Elements, in halves and quarters down to single ones, to simple values.
  bool SimplifyElements(const std::string& name) {
    bool better = false;
    const Index size = best_.Find(name)->size();
    for (Index chunk = size / 2; chunk >= 1; chunk /= 2) {
      Index tries = 0;
      for (Index begin = 0; begin < size && tries < kMostChunks; begin += chunk, ++tries) {
        const Index end = std::min(size, begin + chunk);
        if (!Replace(name, begin, end, [](double) { return 0.0; })) continue;
        better = true;
      }
    }
    if (size > kMostElements) return better;
    for (Index i = 0; i < size; ++i) {
      const auto simplify = [&](const std::function<double(double)>& simpler) {
        if (!Replace(name, i, i + 1, simpler)) return false;
        better = true;
        return true;
      };
      if (simplify([](double) { return 0.0; }) || simplify([](double) { return 1.0; })) continue;
      simplify([](double x) { return -x; });
      if (simplify([](double x) { return std::nearbyint(x); })) continue;
      for (const int bits : {1, 2, 3, 5, 8, 12}) {
        if (simplify([=](double x) { return Rounded(x, bits); })) break;
      }
    }
    return better;
  }

  // Masks to true, lengths to the longest, ids to 0: all at once, then one by one.
  bool SimplifyWhole(const std::string& name) {
    const Dimensions& s = best_.contract.shape;
    const bool is_mask = best_.Find(name)->dtype() == DType::kBool;
    double plain = is_mask ? 1.0 : 0.0;
    if (name == "kv_lengths") plain = static_cast<double>(s.kv_len);
    if (name == "q_lengths") plain = static_cast<double>(s.q_len);
    const Index size = best_.Find(name)->size();
    const auto set = [&](Index begin, Index end) {
      Case candidate = best_;
      Tensor& tensor = candidate.tensors.at(name);
      bool changed = false;
      for (Index i = begin; i < end; ++i) {
        changed = changed || tensor.At(i) != plain;
        tensor.Set(i, plain);
      }
      return changed && Try(std::move(candidate));
    };
    if (set(0, size)) return true;
    bool better = false;
    for (Index i = 0; i < std::min(size, kMostElements); ++i) better = set(i, i + 1) || better;
    return better;
  }

  // Elements begin ... end - 1 through `simpler`, where that makes each no more complex and one
  // less.
  bool Replace(const std::string& name, Index begin, Index end,
               const std::function<double(double)>& simpler) {
    Case candidate = best_;
    Tensor& tensor = candidate.tensors.at(name);
    bool changed = false;
    for (Index i = begin; i < end; ++i) {
      const double old = tensor.At(i);
      const double value = simpler(old);
      if (!(Complexity(value) < Complexity(old))) continue;
      tensor.Set(i, value);
      changed = true;
    }
    return changed && Try(std::move(candidate));
  }

  Case best_;
  const std::function<bool(const Case&)>& still_fails_;
  const ShrinkLimits& limits_;
  const std::chrono::steady_clock::time_point start_;
  Index calls_ = 0;
};

}  // namespace

Case Shrink(const Case& failing, const std::function<bool(const Case&)>& still_fails,
            const ShrinkLimits& limits) {
  return Search(failing, still_fails, limits).Run();
}

}  // namespace attest
