// Checker: does a directory hold what the model says, all of it and nothing else? Reads with the product's Reader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/device.h"
#include "sim/workload.h"

namespace swale::sim {

// Epochs that some rank was told to be committed must be there; later attempted ones may be. Every epoch that is
// there must equal the model exactly: by scan, by index (a sample of `probes` keys and as many absent ones), by
// verify. Returns what is wrong, in words.
std::vector<std::string> check_directory(io::Device& device, const std::string& directory, const Model& model,
                                         uint32_t epochs_promised, size_t probes);

}  // namespace swale::sim
