// RunPacker: one way's compressor, and the memory in which a packed run waits until it is written.
//
//   begin(memtable) ─► work() by the way's worker ─► take(placement): the run, or nothing if it is not worth
//   it
//
// Threads: one at a time; begin and take by the partition's owner, work by whoever has the task.
#pragma once

#include <memory>
#include <optional>

#include "base/buffer.h"
#include "base/codec.h"
#include "base/status.h"
#include "run/packed_run_builder.h"

namespace swale::imd {

class RunPacker {
 public:
  static size_t memory_bytes(size_t memtable_bytes) {
    return run::packed_bytes_max(memtable_bytes) + Compressor::kMemoryBytes;
  }
  static Result<std::unique_ptr<RunPacker>> create(Codec codec, size_t memtable_bytes) {
    SWALE_ASSIGN_OR_RETURN(Compressor compressor, Compressor::create(codec));
    SWALE_ASSIGN_OR_RETURN(Buffer blocks,
                           Buffer::allocate(run::packed_bytes_max(memtable_bytes), HugePages::kAdvise));
    return std::unique_ptr<RunPacker>(new RunPacker(std::move(compressor), std::move(blocks)));
  }

  // What is given must outlive the run, or the next begin.
  void begin(const run::Memtable& memtable, run::RunScratch& scratch, run::SketchArena& arena,
             bool with_tails) {
    memtable_ = &memtable;
    scratch_ = &scratch;
    arena_ = &arena;
    with_tails_ = with_tails;
  }
  void work() {
    if (!run::worth_packing(*memtable_, *scratch_, compressor_)) return;
    run_ = std::make_unique<run::PackedRunBuilder>(*memtable_, *scratch_, *arena_, compressor_,
                                                   MutableBytes(blocks_.data(), blocks_.size()),
                                                   run::RunPlacement{.with_tails = with_tails_});
    run_->pack();
  }
  // None: nothing was taken of the arena, and the memtable is as it was.
  std::unique_ptr<run::RunOutput> take(const run::RunPlacement& placement) {
    if (run_) run_->place(placement);
    return std::move(run_);
  }

 private:
  RunPacker(Compressor compressor, Buffer blocks)
      : compressor_(std::move(compressor)), blocks_(std::move(blocks)) {}

  Compressor compressor_;
  Buffer blocks_;
  const run::Memtable* memtable_ = nullptr;
  run::RunScratch* scratch_ = nullptr;
  run::SketchArena* arena_ = nullptr;
  bool with_tails_ = false;
  std::unique_ptr<run::PackedRunBuilder> run_;
};

}  // namespace swale::imd
