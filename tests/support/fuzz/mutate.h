// A JPEG -> a damaged one: which damages there are, and one input made of a few of them.
#pragma once

#include <cstdint>
#include <vector>

#include "layout.h"
#include "random.h"

namespace fuzz {

// Changes a JPEG; leaves it alone where it has not what is to be damaged.
struct Damage {
  const char* name;
  void (*apply)(Random* random, const std::vector<Bytes>& seeds, Bytes* jpeg);
};

// To entropy-coded bytes, restart markers and tables. Many such files still decode, so they get far.
const std::vector<Damage>& scan_damages();

// To all the rest: headers, lengths, sizes, order, ends.
const std::vector<Damage>& file_damages();

// The input of this number: a seed with one to three damages, of which half are to the scan alone.
Bytes make_input(Random* random, const std::vector<Bytes>& seeds);

// For the damages.
void insert(Bytes* jpeg, std::size_t at, const Bytes& more);
void erase(Bytes* jpeg, Range range);
Bytes copy(const Bytes& jpeg, Range range);

}  // namespace fuzz
