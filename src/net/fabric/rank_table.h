// RankTable: one row of bytes for each rank of a job, all rows of one length, in this process's memory or in
// a file that the processes of a machine, or of a job, share. A row is read when it is wanted, so a process
// that wants few has few.
//
// Rows may come in pieces, as a communicator with a small buffer brings them: the first piece of each rank,
// then the second ones, and so on. They stand in the order in which they come: the piece at `offset` of rank
// r stands at
//   offset x ranks + r x (length of that piece).
// With pieces as long as a row, this is row after row.
//
// Threads: put and flush by one thread; row by any, after flush. Errors name the file and the offset.
// Limits: ranks x row_bytes < 2^63.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "net/fabric/transport.h"

namespace swale::net {

class RankTable {
 public:
  struct Shape {
    int32_t ranks = 0;
    size_t row_bytes = 0;
    size_t piece_bytes = 0;  // the last piece of a row may be shorter
  };

  static RankTable in_memory(const Shape& shape);
  // Creates the file, with mode 0600. kAlreadyExists if there is one.
  static Result<RankTable> create(const std::string& path, const Shape& shape);
  // Opens what another process has created, to read it: refuses a link, and a file of another user.
  static Result<RankTable> open(const std::string& path, const Shape& shape);

  RankTable(RankTable&& other) noexcept;
  RankTable& operator=(RankTable&&) = delete;
  ~RankTable();

  // `offset`: a multiple of piece_bytes. A piece that is too short is filled up with zeros.
  Status put(Rank rank, size_t offset, Bytes piece);
  Status flush();

  // A row that was not put is zeros, or kCorruption where the file ends before it.
  Result<std::string> row(Rank rank) const;

  const Shape& shape() const { return shape_; }
  uint64_t bytes() const { return static_cast<uint64_t>(shape_.ranks) * shape_.row_bytes; }
  bool is_private() const { return fd_ < 0; }  // else its bytes are the file's

 private:
  RankTable(std::string path, int fd, const Shape& shape) : shape_(shape), path_(std::move(path)), fd_(fd) {}

  size_t piece_at(size_t offset) const;  // its length
  uint64_t place_of(Rank rank, size_t offset) const;

  Shape shape_;
  std::string memory_;  // if it has no file
  std::string path_;
  int fd_ = -1;
  std::string unwritten_;  // stands at unwritten_at_ of the file
  uint64_t unwritten_at_ = 0;
};

}  // namespace swale::net
