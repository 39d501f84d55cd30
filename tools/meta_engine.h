// The row of metadata stores in the table of engines (engine.h). Reads a store as a later job would open it,
// without changing it (OverlayDevice); a job may be writing to it, what it commits meanwhile is not seen.
//
// Threads: free functions.
#pragma once

#include "tools/engine.h"

namespace swale::tools {

extern const Engine kMetaEngine;

}  // namespace swale::tools
