// Batches of a budget, for fastpipe.plan.
#include <algorithm>
#include <cstdint>

#include "plan/budget.h"
#include "python/gil.h"
#include "python/register.h"
#include "python/values.h"

namespace fastpipe {
namespace {

using Numbers = py::array_t<std::int64_t, py::array::c_style>;

py::tuple fill(const Numbers& sizes, std::int64_t budget, std::int64_t most) {
  if (sizes.ndim() != 1) throw py::value_error("sizes: expected one dimension");
  if (most < 1) throw py::value_error("most: expected 1 at least");
  const std::int64_t* const first = sizes.data();
  const auto count = static_cast<std::size_t>(sizes.size());
  const bool fits =
      std::all_of(first, first + count, [budget](std::int64_t size) { return size >= 1 && size <= budget; });
  if (!fits) throw py::value_error("sizes: expected numbers from 1 to the budget");
  Numbers batches(sizes.size());
  std::int64_t* const numbers = batches.mutable_data();
  std::int64_t batch_count = 0;
  without_gil([&] { batch_count = fill_batches(first, count, budget, most, numbers); });
  return py::make_tuple(batches, batch_count);
}

}  // namespace

void register_plan(py::module_& m) {
  using namespace py::literals;
  m.def("fill_batches", &fill, "sizes"_a, "budget"_a, "most"_a);
}

}  // namespace fastpipe
