// What node servers say to each other of drains and names (PeerMethod), beside the messages of fs/share.
//
//   DrainStep := file u64 u64, drain u64, backing (inode u64, size u64, modified_ns u64), path sized,
//                touched (directory u64 u64, before_ns u64, after_ns u64), fetch
//   DrainWish := file u64 u64, backing, places varint, (directory u64 u64, name sized, id u64 u64)*
//   SealStep  := file u64 u64, op u8
//   SealAnswer := writers u32, who sized
//   FileStep   := file u64 u64
//   PagesAnswer := opens u32
//   BeginStep := phase u8; the answer of kLostPower and kHadPower: order u64
//   NameNews  := file u64 u64, type u8, gone u8, directory u64 u64, name sized
//
// Threads: plain values. Errors: decoding foreign bytes gives kCorruption.
#pragma once

#include <string>
#include <vector>

#include "fs/share/share_messages.h"
#include "meta/names/tree.h"

namespace swale::fs {

// A directory in which a drain has given a name, and the time of its change on the backing before and after.
struct TouchedDirectory {
  meta::FileId directory = {};  // none: it was none
  int64_t before_ns = 0;
  int64_t after_ns = 0;
};

struct DrainStep {
  meta::FileId file = {};
  uint64_t drain = 0;             // kFix: its number
  SeenBacking backing = {};       // kBrought: what is there now; kWriteOut: whose inode is to be written
  std::string path = {};          // kWriteOut, beneath the backing directory
  TouchedDirectory touched = {};  // kBrought
  std::vector<Span> spans = {};   // kWriteOut
};

// Where an entry is, and what it leads to.
struct KnownPlace {
  meta::FileId directory = {};
  std::string name = {};
  meta::FileId id = {};
};

struct DrainWish {
  meta::FileId file = {};
  SeenBacking backing = {};             // as the node sees it that asks
  std::vector<KnownPlace> places = {};  // from the root of the tree to the file
};

struct NameNews {
  meta::FileId file = {};
  meta::NodeType type = meta::NodeType::kFile;
  bool gone = false;
  meta::FileId directory = {};  // if it is not gone
  std::string name = {};
};

// DO NOT CHANGE THESE VALUES: nodes of one job may run different builds.
enum class SealOp : uint8_t {
  kLook = 0,    // who may change its bytes
  kSeal = 1,    // the same; it is being sealed: the last close of those asks for that again
  kUnseal = 2,  // what the node has kept of the sealed file goes
};
struct SealStep {
  meta::FileId file = {};
  SealOp op = SealOp::kLook;
};
struct SealAnswer {
  uint32_t writers = 0;
  std::string who = {};  // some of them, for a message
};

// kPages: the kernel of a node is to drop its pages of a file. kTakeBack: its programs read by no map of it.
// kKeep: all that the node has committed of it. kCommit: it is to commit what it has of it.
struct FileStep {
  meta::FileId file = {};
};
struct PagesAnswer {
  uint32_t opens = 0;  // there, that still read through pages
};

// DO NOT CHANGE THESE VALUES: nodes of one job may run different builds.
enum class BeginPhase : uint8_t {
  kHadPower = 0,   // all that the node has committed, its logs have
  kLostPower = 1,  // what it had made durable, they have
  kReady = 2,      // it has told all, and has committed what it found
};
struct BeginStep {
  BeginPhase phase = BeginPhase::kHadPower;
};

std::string encode(const BeginStep& step);
Result<BeginStep> decode_begin_step(Bytes bytes);
std::string encode(const DrainStep& step);
Result<DrainStep> decode_drain_step(Bytes bytes);
std::string encode(const DrainWish& wish);
Result<DrainWish> decode_drain_wish(Bytes bytes);
std::string encode(const NameNews& news);
Result<NameNews> decode_name_news(Bytes bytes);
std::string encode(const SealStep& step);
Result<SealStep> decode_seal_step(Bytes bytes);
std::string encode(const SealAnswer& answer);
Result<SealAnswer> decode_seal_answer(Bytes bytes);
std::string encode(const FileStep& step);
Result<FileStep> decode_file_step(Bytes bytes);
std::string encode(const PagesAnswer& answer);
Result<PagesAnswer> decode_pages_answer(Bytes bytes);

}  // namespace swale::fs
