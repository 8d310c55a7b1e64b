// The coefficients that several crops of a picture need -> kept, so that each is read once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "jpeg/decode/coefficient_rows.h"
#include "jpeg/decode/strips.h"

namespace fastpipe {

// Note [crops together]
// Crops of one picture overlap, and reading a coefficient costs more than all that comes after it. So where several
// crops are wanted, the MCUs that any of them needs are read once, into memory that holds them all; each crop is then
// transformed from there. Of a row of MCUs, those between the leftmost and the rightmost are read. A photo of 500 x 375
// takes 660 kB, which stays in the cache of a core. Where the crops hardly overlap, each is read by itself: see
// `is_cheaper`. Each crop has the same pixels either way.
// The crops of a KEY.fpc never share: its coefficients are read faster than memory gives them back.
class CoefficientStore {
 public:
  // Plans for crops that need these windows, at least one. Forgets what it held.
  void plan(const StripPicture& picture, const std::vector<StripWindow>& windows);

  // Which MCUs of rows [top, bottom) are kept: the same columns of each; none if right <= left.
  StripWindow columns(int top, int bottom) const;

  // The smallest window that holds all of them.
  const StripWindow& all() const { return all_; }

  // Makes room, unless it would take so much that crops are better read by themselves.
  bool make_room();

  // Where the coefficients of a row of MCUs are, from a column on.
  std::array<CoefficientRows, kMostComponents> at(int row, int left) const;

  // Whether all is there: then crops are taken from here, each by a window that begins at an even MCU, since blocks are
  // kept in pairs.
  bool filled() const { return filled_; }
  void set_filled(bool filled) { filled_ = filled; }
  static void widen(StripWindow* window) { window->left &= ~1; }

 private:
  struct Columns {
    int left = 0, right = 0;
  };

  bool filled_ = false;
  int components_ = 0;
  std::array<int, kMostComponents> across_ = {}, down_ = {};
  StripWindow all_;
  std::vector<Columns> rows_;  // from all_.top on
  std::array<CoefficientRows, kMostComponents> planes_;
  std::vector<std::int16_t> memory_;
};

}  // namespace fastpipe
