// Any JPEG that libjpeg-turbo can read -> what the same coefficients are in one baseline scan.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "jpeg/transcode/output_header.h"
#include "jpeg/transcode/tokens.h"
#include "jpeg/transcode/transcode_options.h"

namespace fastpipe {

// Reads every coefficient: what is truncated or corrupt anywhere is found. `header` and `tokens` are filled in unless
// options.check_only is set or the source has 4 components; `tokens` must be empty before.
Status read_coefficients(const std::uint8_t* data, std::size_t size, const TranscodeOptions& options, JpegInfo* info,
                         OutputHeader* header, TokenList* tokens);

}  // namespace fastpipe
