// How a Reader makes the ReaderViews that answer its queries.
// Threads: free functions.
#pragma once

#include <memory>
#include <string>

#include "imd/read/reader.h"
#include "imd/read/reader_io.h"

namespace swale::imd {

// Answers queries on the epochs of `manifest`. `device`, `counters` and `partitioners` must outlive it.
// `before` (may be null): a view of the same directory that has the first `common` epochs (at least one) of the
// manifest; what is still right of its files, mappings and footers is taken over. It may be in use.
std::unique_ptr<ReaderView> make_reader_view(io::Device& device, const std::string& directory,
                                             Manifest manifest, const ReaderOptions& options,
                                             ReadCounters& counters, const Partitioners& partitioners,
                                             ReaderView* before, size_t common);

}  // namespace swale::imd
