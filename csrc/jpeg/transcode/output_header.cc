#include "jpeg/transcode/output_header.h"

namespace fastpipe {

OutputHeader::OutputHeader(const ParsedHeader& scan)
    : size(scan.size), components(static_cast<std::size_t>(scan.components)), jfif(scan.jfif) {
  for (std::size_t c = 0; c < components; ++c) {
    const std::size_t steps = scan.tables.quant_of[c];
    component[c] = {scan.ids[c], scan.factors[c] >> 4, scan.factors[c] & 15, steps, c == 0 ? 0u : 1u};
    quant[steps] = scan.tables.quant[steps];
  }
}

}  // namespace fastpipe
