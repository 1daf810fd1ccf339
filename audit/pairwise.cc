// SPDX-License-Identifier: Apache-2.0
#include "audit/pairwise.h"

#include <optional>

namespace attest {
namespace {

using Row = std::vector<std::size_t>;

class PairCover {
 public:
  PairCover(const std::vector<std::size_t>& levels, const CanCombine& can_combine)
      : levels_(levels), can_combine_(can_combine), open_(levels.size()) {
    for (std::size_t a = 0; a < levels.size(); ++a) {
      open_[a].resize(levels.size());
      for (std::size_t b = a + 1; b < levels.size(); ++b) {
        open_[a][b].assign(levels[a] * levels[b], false);
        for (std::size_t x = 0; x < levels[a]; ++x) {
          for (std::size_t y = 0; y < levels[b]; ++y) {
            open_[a][b][x * levels[b] + y] = can_combine(a, x, b, y);
          }
        }
      }
    }
  }

  std::vector<Row> Rows() {
    std::vector<Row> rows;
    for (std::size_t a = 0; a < levels_.size(); ++a) {
      for (std::size_t b = a + 1; b < levels_.size(); ++b) {
        for (std::size_t pair = 0; pair < open_[a][b].size(); ++pair) {
          if (!open_[a][b][pair]) continue;
          std::optional<Row> row = Complete(a, pair / levels_[b], b, pair % levels_[b]);
          open_[a][b][pair] = false;  // also where no row can hold it
          if (!row) continue;
          Close(*row);
          rows.push_back(*std::move(row));
        }
      }
    }
    return rows;
  }

 private:
  static constexpr std::size_t kUnset = static_cast<std::size_t>(-1);

  bool IsOpen(std::size_t a, std::size_t x, std::size_t b, std::size_t y) const {
    return a < b ? open_[a][b][x * levels_[b] + y] : open_[b][a][y * levels_[a] + x];
  }
  bool Combines(std::size_t a, std::size_t x, std::size_t b, std::size_t y) const {
    return a < b ? can_combine_(a, x, b, y) : can_combine_(b, y, a, x);
  }

  // A row with these two values; every other parameter, first to last, takes the value that meets
  // most values for the first time, the next one after the last choice among equals, so that
  // values take turns. Nothing where some parameter has no value that fits.
  std::optional<Row> Complete(std::size_t a, std::size_t x, std::size_t b, std::size_t y) {
    Row row(levels_.size(), kUnset);
    row[a] = x;
    row[b] = y;
    for (std::size_t p = 0; p < levels_.size(); ++p) {
      if (row[p] != kUnset) continue;
      std::optional<std::size_t> best;
      std::size_t best_gain = 0;
      for (std::size_t step = 0; step < levels_[p]; ++step) {
        const std::size_t value = (turn_ + step) % levels_[p];
        std::size_t gain = 1;
        bool fits = true;
        for (std::size_t q = 0; q < levels_.size() && fits; ++q) {
          if (row[q] == kUnset) continue;
          fits = Combines(p, value, q, row[q]);
          gain += IsOpen(p, value, q, row[q]) ? 1 : 0;
        }
        if (!fits || gain <= best_gain) continue;
        best = value;
        best_gain = gain;
      }
      if (!best) return std::nullopt;
      row[p] = *best;
    }
    ++turn_;
    return row;
  }

  void Close(const Row& row) {
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = a + 1; b < row.size(); ++b) {
        open_[a][b][row[a] * levels_[b] + row[b]] = false;
      }
    }
  }

  const std::vector<std::size_t>& levels_;
  const CanCombine& can_combine_;
  std::vector<std::vector<std::vector<bool>>> open_;  // pairs that no row has yet
  std::size_t turn_ = 0;
};

}  // namespace

std::vector<Row> CoverPairs(const std::vector<std::size_t>& levels, const CanCombine& can_combine) {
  return PairCover(levels, can_combine).Rows();
}

}  // namespace attest
