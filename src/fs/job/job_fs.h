// JobFs: the tree of a job as one node's programs see it: names of a NamesClient, bytes of NodeFiles, and
// with several nodes of SharedFiles, over the backing directory (docs/design/file-system.md, "The tree over
// the backing").
//
// What is on the backing is seen; the tree adopts a name when it is first looked up. Changes of names and
// attributes of what is there are made there, too, at once; new files, and bytes, come there by the drain,
// and with several nodes times of files.
//
// The kernel checks permissions (default_permissions): none are checked here. Refused: link, device nodes,
// FIFOs, sockets, and owners other than the own: EPERM; attributes other than "user.": EOPNOTSUPP; writes to
// a file with several names on the backing: EPERM.
//
// Threads: as FileSystem says; one of its own drains, and supplies writers with memory. Locks are taken in
// the order drain_mutex_, change_mutex_, the turn of this node (NameTurns), mutex_, that of JobNodes. With
// mutex_ held no node is asked but for names, and the backing is not used, but while this opens. Between the
// turn and mutex_: a hold of FilesInHand.
// Invariants: (1) What is on the backing has there the name that it has in the tree, but for the moment of a
// change, which an intent covers, and which those that look for it wait out (MovingNames). (2) A write that
// has returned is seen by every read after it. (3) After fsync a machine that loses power finds the file's
// name and bytes: on the backing, or on this node.
// Errors: errnos; the cause is in the log of the program. EIO: a server of names that does not answer, or
// bytes that are damaged: the message names it.
// Limits: Inode numbers are of ids: a tree of 4,096 openings.
#pragma once

#include <fcntl.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/mutex.h"
#include "fs/file_system.h"
#include "fs/job/files_in_hand.h"
#include "fs/job/hidden_times.h"
#include "fs/job/job_fs_options.h"
#include "fs/job/job_locks.h"
#include "fs/job/job_nodes.h"
#include "fs/job/kept_aside.h"
#include "fs/job/light_gate.h"
#include "fs/job/log_grants.h"
#include "fs/job/lost_attributes.h"
#include "fs/job/moving_names.h"
#include "fs/job/name_intent.h"
#include "fs/job/node_life.h"
#include "fs/job/request_lock.h"
#include "fs/job/stand_in_roots.h"
#include "fs/job/undrained_elsewhere.h"
#include "fs/log/log_writer.h"
#include "fs/node/drain.h"
#include "fs/node/known_paths.h"
#include "fs/node/node_files.h"
#include "fs/peers/name_turns.h"
#include "fs/peers/remote_peers.h"
#include "fs/peers/shared_drain.h"
#include "meta/client/names_client.h"

namespace swale::fs {

struct JobFile;

class JobFs final : public FileSystem {
 public:
  // Recovers what a server before this one left. All must outlive it. `peers`: the servers of the other
  // nodes; null: there is one. They are to be closed after rest(), before this ends.
  static Result<std::unique_ptr<JobFs>> open(meta::NamesClient& names, io::Device& memory,
                                             io::Device& storage, io::Device& backing,
                                             const JobFsOptions& options,
                                             NodePeers* peers = nullptr) noexcept;
  ~JobFs() override;

  // Drains nothing by itself any more, and asks no other node by itself.
  void rest() noexcept;

  // Brings all that this node has to the backing; the first failure, after all were tried. A file that this
  // drain or an earlier one has kept aside is one.
  Status drain_all() noexcept;
  Status kept_aside() const { return kept_aside_.failure(options_.job); }
  // All that all nodes have.
  Status drain_everywhere() noexcept;
  JobFsStats stats() noexcept;

  // Programs that append to logs of their own (job_fs_programs.cc); JobAttach has their connections.
  struct Program {
    uint32_t log = 0;
    AttachToken token;
    NodeLogs::Descriptors files;
  };
  Result<Program> add_program() noexcept;
  // kResourceExhausted: repeat it.
  Status end_program(uint32_t log) noexcept;
  void programs_meet_at(const std::string& socket);  // "": nowhere
  // Of writes that programs have done wrongly, the first ones.
  std::vector<Status> damage();

  // Programs that open files past the kernel (job_fs_light.cc); LightServer has their connections.
  struct LightFile {
    std::unique_ptr<OpenFile> file;
    Node* node = nullptr;
  };
  struct LightOpen {
    uint64_t directory = 0;  // the inode of one that the kernel knows
    std::string_view path;   // below it
    int flags = 0;
    mode_t mode = 0, umask = 0;
    const Credentials* who = nullptr;
    // Any errno: nothing was made or opened, and the kernel is to be asked.
    int failed = 0;
    LightFile made = {};
  };
  // Ends open files that were opened so, and makes others: all with one record of the names. Opens what is
  // there.
  void serve_light(std::span<LightFile> ended, std::span<LightOpen> wanted);
  // What the kernel would say of a path: 0, if `who` may do what `access` says (R_OK, W_OK, X_OK). Any errno:
  // the kernel is to be asked.
  int look_light(uint64_t directory, std::string_view path, int access, const Credentials& who,
                 struct stat* found);
  // With several nodes an open may wait for another one.
  bool light_waits() const { return shared_ != nullptr; }
  // A name below the top by which the kernel can open the file once, until it is taken back. The file stays
  // open until then.
  std::string lend(OpenFile& file);
  void take_back(const std::string& name);

  // A tree that is mounted nowhere (job_fs_unmounted.cc); StandIns asks.
  static const meta::FileId& file_id(Node& node);
  Node* know(const meta::FileId& id);  // with one lookup more; null: nobody knows it
  // One of which a server before this one has left something, by its name. ENOENT: it has none.
  int find_file(const meta::FileId& id, Entry* entry);
  bool has_name(Node& node);
  // The backing's descriptor of an open file, if the backing has it as it is; else an invalid one.
  io::Descriptor there(OpenFile& file);
  static bool is_file(Node& node);
  // The same of several nodes (SharedStandIns).
  bool is_shared() const { return shared_ != nullptr; }
  NodePeers& peers() { return *peers_; }
  StandInRoots& stand_in_roots() { return stand_in_roots_; }
  int reserve(OpenFile& file, uint64_t bytes, uint64_t* place);  // behind all that nodes have written
  static int answer_of(const Status& status) { return answer(status); }

  const std::string& folder_of_logs() const { return options_.logs.memory_directory; }

  std::string name_of(Node& node) const override;
  KernelUse kernel_use() const override { return {.keep_seconds = 0, .checks_acls = false}; }
  void set_acls(bool) override {}
  size_t nodes_known() const override { return nodes_.size(); }
  void call_above(size_t nodes, std::function<void()> crowded) override {
    nodes_.call_above(nodes, std::move(crowded));
  }
  std::vector<IdleName> take_idle(size_t count) override { return nodes_.take_idle(count); }

  // Names (job_fs_names.cc, job_fs_renames.cc).
  int lookup(Node& parent, const char* name, Entry* entry) override;
  void forget(Node* node, uint64_t count) override;
  int make_node(Node& parent, const char* name, mode_t mode, dev_t device, const Caller& caller,
                Entry* entry) override;
  int make_directory(Node& parent, const char* name, mode_t mode, const Caller& caller,
                     Entry* entry) override;
  int make_symlink(Node& parent, const char* name, const char* target, const Caller& caller,
                   Entry* entry) override;
  int read_symlink(Node& node, std::string* target) override;
  int link(Node&, Node&, const char*, const Caller&, Entry*) override { return EPERM; }
  int unlink(Node& parent, const char* name, const Caller& caller) override;
  int remove_directory(Node& parent, const char* name, const Caller& caller) override;
  int rename(Node& parent, const char* name, Node& new_parent, const char* new_name, unsigned flags,
             const Caller& caller) override;
  int open_directory(Node& node, const Caller& caller, std::unique_ptr<OpenDirectory>* directory) override;
  int read_directory(OpenDirectory& directory, off_t from,
                     const std::function<bool(const DirectoryEntry&)>& add) override;
  int sync_directory(OpenDirectory& directory) override;

  // Attributes (job_fs_attributes.cc).
  int attributes(Node& node, struct stat* attributes) override;
  int change(Node& node, const Change& change, const Caller& caller, struct stat* attributes) override;
  int statistics(struct statvfs* statistics) override;
  int get_attribute(Node& node, const char* name, const Caller& caller, std::string* value) override;
  int list_attributes(Node& node, const Caller& caller, std::string* names) override;
  int set_attribute(Node& node, const char* name, Bytes value, int flags, const Caller& caller) override;
  int remove_attribute(Node& node, const char* name, const Caller& caller) override;

  // Bytes (job_fs_bytes.cc).
  int create(Node& parent, const char* name, mode_t mode, int flags, const Caller& caller, Entry* entry,
             std::unique_ptr<OpenFile>* file) override;
  int open_file(Node& node, int flags, const Caller& caller, std::unique_ptr<OpenFile>* file) override;
  void release(std::unique_ptr<OpenFile> file) override;
  int read(OpenFile& file, uint64_t offset, MutableBytes out, size_t* got) override;
  bool read_in_place(OpenFile& file, uint64_t offset, uint64_t length, const Give& give) override;
  int write(OpenFile& file, uint64_t offset, uint64_t length, const Caller& caller,
            const Fill& fill) override;
  void write(OpenFile& file, uint64_t offset, uint64_t length, const Caller& caller, const Fill& fill,
             const std::function<void(int)>& answered) override;
  void write_bytes(OpenFile& file, uint64_t offset, Bytes bytes, const Caller& caller,
                   const std::function<void(int)>& answered) override;
  int flush(OpenFile& file) override;
  int sync(OpenFile& file) override;
  int allocate(OpenFile& file, int mode, uint64_t offset, uint64_t length, const Caller& caller) override;
  int seek(OpenFile& file, uint64_t offset, int whence, uint64_t* found) override;
  int command(OpenFile& file, unsigned long command, Bytes in, std::string* out) override;
  FileLocks* locks() override { return locks_.get(); }

  // Pages of the kernel (job_fs_pages.cc).
  Pages pages(const OpenFile& file, bool maps) const override;
  void drop_pages_by(DropPages drop) override;
  bool may_drop_pages(const Node* node, std::optional<mode_t> mode = {}) const override;
  void note_page_read(OpenFile& file) override;

 private:
  JobFs(meta::NamesClient& names, io::Device& backing, const JobFsOptions& options, NodePeers* peers)
      : names_(names), options_(options), peers_(peers), backing_(*this, backing, options.backing) {}

  // What the tree has of a file beside its bytes.
  struct Dress {
    mode_t mode = 0;
    uid_t user = 0;
    gid_t group = 0;
    int64_t accessed_ns = 0, modified_ns = 0;
    std::map<std::string, std::string> attributes = {};
    friend bool operator==(const Dress&, const Dress&) = default;
  };
  // What NodeFiles and Drain ask.
  class TreeBacking final : public Backing {
   public:
    TreeBacking(JobFs& fs, io::Device& device, const std::string& root) : Backing(device, root), fs_(fs) {}
    Result<std::string> path_of(const meta::FileId& file) override { return fs_.path_of(file); }
    Status dress(const meta::FileId& file, io::File& out, io::File*) override;
    Result<bool> dress_again(const meta::FileId& file, io::File& out) override;
    void forget_dresses() { dresses_.clear(); }

   private:
    Result<bool> dress_anew(const meta::FileId& file, io::File& out);

    JobFs& fs_;
    std::map<meta::FileId, Dress> dresses_;  // of the drain that is under way
  };
  Result<std::string> path_of(const meta::FileId& file);
  Result<Dress> dress_of(const meta::FileId& file);
  Status put_on(const meta::FileId& file, const Dress& dress, const Dress& before, io::File& out);

  Status begin(io::Device& memory, io::Device& storage);
  Status find_places();
  Status find_new_files();
  Status find_times();
  Status finish_intent() REQUIRES(change_mutex_);
  Status start_log();
  static int answer(const Status& status);
  // Of a change of this entry: a machine that loses power must not find bytes under no name, nor a name
  // without its bytes.
  meta::AnswerWait wait_of(const meta::DirEntry& entry) EXCLUDES(mutex_);

  // Names.
  bool is_private(const JobNode& parent, std::string_view name) const {
    return &parent == root_node_ && name == kSwaleDirectory;
  }
  Result<meta::Named> look_up(JobNode& parent, const char* name);
  Result<std::optional<meta::Named>> find_known(JobNode& parent, const char* name, bool in_turn);
  Result<meta::Named> adopt(JobNode& parent, const char* name);
  Result<bool> has_vanished(JobNode& parent, const char* name, const meta::Named& named);
  Result<bool> remove_vanished(JobNode& parent, const char* name, const meta::Named& named);
  int find_directory(JobNode& parent, const char* name, const meta::Named& named, io::Descriptor* out);
  int enter(const JobNodes::LookUp& by, JobNode& parent, const char* name, const meta::Named& named,
            io::Descriptor directory, Entry* entry);
  int keep_name(JobNode& parent, const char* name);  // 0: no entry has it
  void changed(JobNode& directory);
  Result<io::Descriptor> on_backing(const meta::FileId& id);  // O_PATH; invalid: it is not there
  Result<io::Descriptor> parent_on_backing(const meta::FileId& id);
  // Of what is no directory. In hand no drain replaces it.
  Result<io::Descriptor> settled_there(const JobNode& node);
  Status list(JobNode& node, std::vector<DirectoryEntry>* entries);
  int look_again(JobNode& parent, const char* name, meta::DirEntry* entry);
  int remove_entry(JobNode& parent, const char* name, const meta::DirEntry& seen);
  struct Rename;
  int check_rename(const Rename& wanted);
  int commit_moved(const meta::FileId& file);
  Status expect_same(const Rename& wanted);
  // A file that must be on the backing before.
  Result<std::optional<meta::FileId>> rename_locked(const Rename& wanted);
  Status rename_both(const Rename& wanted, uint64_t inode) REQUIRES(change_mutex_);
  Status rename_entry(const Rename& wanted, meta::AnswerWait wait);
  bool rename_back(const Rename& wanted);
  bool replaces_directory(const Rename& wanted) const;
  int expect_empty(const meta::FileId& directory);
  std::string path_in(const JobNode& parent,
                      const char* name) const;   // of the backing, for messages and intents
  static bool is_refusal(const Status& status);  // the names have done nothing, and never will
  // A directory that the names have not removed yet.
  std::string taken_path(const meta::FileId& directory) const;
  int take_from_backing(JobNode& parent, const char* name, const meta::DirEntry& entry);
  bool give_back(JobNode& parent, const char* name, const meta::DirEntry& entry);
  void remove_taken(JobNode& parent, const char* name, const meta::DirEntry& entry);
  Status undo_on_backing(const NameChange& left);
  Status hold_unheld(const meta::DirEntry& entry) EXCLUDES(mutex_);
  void name_is_gone(const meta::DirEntry& entry) REQUIRES(mutex_);
  void drop(const meta::FileId& id) REQUIRES(mutex_);

  // Attributes.
  int describe(const meta::FileId& id, const meta::TreeNode& node, JobNode* known, struct stat* attributes);
  int describe_directory(JobNode& node, struct stat* attributes);
  int change_there(JobNode& node, const std::function<int(const char* path)>& change,
                   bool* is_there = nullptr, const timespec* modified = nullptr);
  int change_mode(JobNode& node, mode_t mode);
  int change_mode_in_turn(JobNode& node, mode_t mode, bool* unsealed);
  int check_owner(JobNode& node, const Change& change);
  int cut(JobNode& node, const Change& change, const Caller& caller);
  Status set_mode(const meta::FileId& id, uint32_t taken, uint32_t given) REQUIRES(mutex_);
  int say_modified(JobNode& node);
  static meta::NodeChange modified_at(int64_t modified_ns);  // 0: nothing changes, but is synced
  Status sync_names(const meta::FileId& file, int64_t modified_ns = 0);

  // The first attribute that the backing still lacks.
  Status find_lost();
  void note_lost(const meta::FileId& file, const std::string& name, size_t bytes, int error_number);
  Result<bool> is_lost(const LostAttributes::Lost& lost);

  // Times of files (job_fs_times.cc).
  int change_times(JobNode& node, const Change& change);
  int set_times_there(JobNode& node, const timespec times[2]);
  int set_times_to_come(JobNode& node, meta::NodeChange change);
  int written_time_follows(JobNode& node);
  Status find_retimed();
  Result<Drain::Outcome> drain_times(const meta::FileId& file, std::optional<NameTurn>* publishing)
      REQUIRES(drain_mutex_);
  Status put_times(const meta::FileId& file, const meta::TreeNode& node, const io::Descriptor& there);

  // Bytes.
  // A create: what was so before the names were asked.
  struct Making {
    Making(JobFs& fs, JobNode& in, std::string called, bool holds_it = true);

    JobNode& parent;
    const std::string name;
    const bool holds;  // the names keep the file while it is open
    const JobNodes::LookUp began;
    uint64_t seals_before = 0;
    uint64_t drains_before = 0;
  };
  using Hold = meta::NamesClient::Hold;  // kNo: hold_unheld() does, once its name goes
  int opened(JobNode& node, int flags, std::unique_ptr<OpenFile>* file, Hold hold,
             const Making* by = nullptr);
  int open_node(JobNode& node, int flags, const Caller& caller, Hold hold, std::unique_ptr<OpenFile>* file);
  bool may_be_there(const JobNode& parent, const char* name) const;
  static meta::NewNode new_file(const struct stat& above, mode_t mode, const Caller& caller);
  int open_entered(const Making& by, JobNode& node, const meta::TreeNode& made, int flags,
                   const Caller& caller, struct stat* attributes, std::unique_ptr<OpenFile>* file);
  int open_made(const Making& by, const meta::Opened& made, int flags, const Caller& caller, JobNode** node,
                struct stat* attributes, std::unique_ptr<OpenFile>* file);  // attributes: null: nobody asks
  // What an open has found on the backing.
  struct Found {
    io::Descriptor own;      // to read it there
    NodeFiles::There there;  // for the logs
  };
  int look_there(JobNode& node, bool writes, bool logged, const NodeFiles& files, Found* found)
      EXCLUDES(mutex_);
  // Opens the file in the logs, if this node has not, or gives `own` what it is on the backing. Null: opens
  // it in the logs once more. Gives the mutex up while it looks there.
  int find_bytes(JobNode& node, bool writes, io::Descriptor* own) REQUIRES(mutex_);
  // Looks without the mutex. Whether names and drains have left alone what it saw of that file.
  template <class Look>
  bool looks_undisturbed(const JobNode& node, const Look& look) REQUIRES(mutex_);
  // Before holes are looked at of a file that the logs have open: opens it on the backing, if it is not.
  int find_holes(JobNode& node) REQUIRES(mutex_);
  bool wait_for_move(const meta::FileId& id) EXCLUDES(mutex_);  // false: there is none
  void note_path(const meta::FileId& file) noexcept REQUIRES(mutex_);
  // `before`: its path, if it had one. A rename of a directory moves all that is beneath it.
  void note_move(const meta::DirEntry& moved, const std::optional<std::string>& before) noexcept
      REQUIRES(mutex_);
  int expect_one_name(JobNode& node, io::File& there);
  void let_go(JobFile& file);
  std::optional<int> sync_on_node(JobNode& node);
  std::optional<int> sync_on_nodes(JobNode& node);
  int truncate(JobNode& node, uint64_t size);
  int begin_write(JobFile& file, uint64_t* offset, uint64_t length, const Caller& caller);
  int append(JobNode& node, uint64_t offset, Bytes bytes);
  int commit(JobNode& node);
  int commit_all(JobNode& node);  // what programs have appended, too
  int content_changes(JobNode& node, const Caller& caller);

  // Space (job_fs_space.cc). `blocks`: of st_blocks, at most.
  Result<uint64_t> size_of(const meta::FileId& id, const JobNode* node = nullptr, uint64_t* blocks = nullptr);
  int seek_in_data(const JobFile& file, uint64_t offset, int whence, uint64_t* found);
  int seek_stored(const JobFile& file, uint64_t offset, int whence, uint64_t* found);
  int write_zeros(const JobFile& file, uint64_t offset, uint64_t end);
  int grow(JobNode& node, uint64_t size);

  // Sealed files (job_fs_seal.cc).
  // Whoever may change the file's bytes, until end_writer. EPERM: it is sealed. `seals_seen`: of a file that
  // did not exist then.
  int count_writer(JobNode& node, const Caller& caller, std::optional<uint64_t> seals_seen = {});
  void end_writer(JobNode& node, pid_t thread);
  // True: it was the last one, and the file is to be sealed: call seal_at_close() without the mutex.
  [[nodiscard]] bool end_writer_locked(JobNode& node, pid_t thread) REQUIRES(mutex_);
  void seal_at_close(JobNode& node);
  Status settle_seal(JobNode& node);
  // `unsealed`: its pages are to be dropped when the turn is over.
  int change_shared_mode(JobNode& node, mode_t mode, bool* unsealed);
  Result<SealAnswer> ask_all(const SealStep& step);
  SealAnswer answer_seal(const SealStep& step);
  int refuse_sealed(const JobNode& node) const;
  uint32_t seal_of(JobNode& node, mode_t mode) REQUIRES(mutex_);
  int tell_seal(JobNode& node, std::string* out);

  // Pages of sealed files.
  void open_sealed(JobFile& file) REQUIRES(mutex_);
  void note_read(JobFile& file);
  bool kernel_has_pages(const JobNode& node) const REQUIRES(mutex_);
  void tell_if_mapped(std::span<const uint32_t> logs) REQUIRES(mutex_);
  void show_to_mappings(JobNode& node);
  void end_mapping(JobFile& file);
  void note_seal(JobNode& node, uint32_t mode, uint64_t seals_before);
  void note_unsealed(JobNode& node) REQUIRES(mutex_);
  void note_pages_left(JobNode& node);
  uint32_t drop_pages_here(const meta::FileId& file);
  int drop_pages_everywhere(JobNode& node);
  int drop_pages_left(JobNode& node);

  io::Descriptor there_of_all(const meta::FileId& id);

  // Programs.
  int say_meeting(std::string* value);
  int take_promise(JobFile& file);
  int grant(JobFile& file, const AttachToken& token);
  int take_granted(JobNode& node);
  int publish_map(JobFile& file, Bytes in, std::string* out);
  Status map_of(JobFile& file, MapRequest* map);
  int take_promise_back(JobFile& file);
  void set_may_map(JobFile& file, bool may) REQUIRES(mutex_);
  void revoke_grants(JobFile& file);
  // None: where the kernel says.
  Result<std::optional<uint64_t>> place_to_append(JobNode& node, uint64_t bytes);
  static Caller own_user();

  // Opens past the kernel (job_fs_light.cc).
  struct Lent {
    meta::FileId file;
    int access = O_RDONLY;
  };
  class Held;
  class Walk;
  struct LightMaking;
  class LightRound;
  int step_into(JobNode& parent, const char* name, JobNode** found);
  bool may_pass(const Credentials& who, const struct stat& directory, int wanted) const;
  int refuse_open(const LightOpen& wanted, const struct stat& above, const struct stat& found) const;
  int open_light(JobNode& node, const LightOpen& wanted, const Caller& caller,
                 std::unique_ptr<OpenFile>* file);
  int cut_light(JobNode& node);
  std::optional<Lent> take_lent(std::string_view name);
  int open_lent(const Lent& lent, int flags, const Caller& caller, Entry* entry,
                std::unique_ptr<OpenFile>* file);

  // The drain (job_fs_drain.cc).
  using DrainedFiles = std::vector<Drain::Drained>;
  struct Wanted {
    const meta::FileId file;
    std::optional<Result<Drain::Outcome>> outcome;  // set by who has drain_mutex_
  };
  std::vector<HiddenTimes::Change> hide_times(std::span<const meta::FileId> files);
  void keep_time(const JobNode& directory);
  bool fsync_drains() const { return options_.fsync_drains; }
  Result<NodeLogs::Kept> keep_on_node(const FileTime& file);
  Result<bool> keep_committed(const meta::FileId& file);  // false: it takes a drain
  Result<Drain::Outcome> drain_file(const meta::FileId& file) noexcept;
  void drain_wanted() REQUIRES(drain_mutex_);
  // As many as one batch has, with a result for each; at least one.
  DrainedFiles drain_first(std::span<const meta::FileId> files, uint64_t bytes_limit);
  DrainedFiles drain_some(std::span<const meta::FileId> files, uint64_t bytes_limit) REQUIRES(drain_mutex_);
  DrainedFiles drain_steps(std::span<const meta::FileId> files, uint64_t bytes_limit,
                           std::optional<NameTurn>* publishing) REQUIRES(drain_mutex_);
  DrainedFiles give_up_drain(const Status& why) REQUIRES(drain_mutex_);
  // `publishing`: gets the turn in which they got their names; null: it ends with the batch.
  DrainedFiles drain_batch(std::span<const meta::FileId> files, uint64_t bytes_limit,
                           std::optional<NameTurn>* publishing = nullptr) REQUIRES(drain_mutex_);
  Status failure_of(const meta::FileId& file, Drain::Outcome outcome);
  Status drain_each(std::span<const meta::FileId> files);  // the first failure
  bool fill() REQUIRES(drain_mutex_);
  void note(const meta::FileId& file, const Result<Drain::Outcome>& outcome);
  // Those whose times alone the backing lacks, too.
  std::vector<meta::FileId> undrained() REQUIRES(mutex_);
  std::vector<meta::FileId> next_to_drain(const std::set<meta::FileId>& but) REQUIRES(mutex_);
  bool is_open(const meta::FileId& file) REQUIRES(mutex_);
  Result<Drain::Outcome> drain_here(const meta::FileId& file, NodeId asks, const SeenBacking& seen) noexcept;
  void keep() noexcept;
  void settle_logs() noexcept;
  void make_space();
  uint64_t writes_so_far();
  uint64_t undrained_bytes();
  enum class OpenFiles { kStay, kToo };
  void drain_idle(uint64_t writes, OpenFiles open, std::set<meta::FileId>* failed);

  // Several nodes (job_fs_nodes.cc).
  class OtherNodes final : public PeerRequests {
   public:
    explicit OtherNodes(JobFs& fs) : fs_(fs) {}
    Result<std::string> answer(PeerMethod method, NodeId from, Bytes payload) override {
      return fs_.answer_node(method, from, payload);
    }

   private:
    JobFs& fs_;
  };
  Status join_nodes(io::Device& storage);
  Status begin_together();
  Result<uint64_t> tell_begin(NodeId node, BeginPhase phase);
  Result<std::string> answer_begin(NodeId from, const BeginStep& step);
  bool have_all_begun();
  Result<std::string> answer_node(PeerMethod method, NodeId from, Bytes payload);
  Result<std::string> drain_for(NodeId node, const DrainWish& wish);
  Status learn_places(const DrainWish& wish);
  Result<DrainWish> wish_for(const meta::FileId& file);
  Result<Drain::Outcome> drain_at_root(const meta::FileId& file);
  void hear(const NameNews& news);
  // All other nodes, before the change is answered.
  Status tell(const NameNews& news);
  Status tell_place(const meta::DirEntry& entry, const JobNode& parent, const char* name);
  Status tell_gone(const meta::DirEntry& entry);
  Result<SeenBacking> seen_there(const meta::FileId& id);
  // Whether a node of the job has it open.
  bool is_held(const meta::FileId& id);
  void drop_nameless();
  Status learn_directory(meta::FileId id);
  Result<NameTurn> turn_to_find(JobNode& node);
  Result<NameTurn> take_turn() { return NameTurn::take(turns_.get()); }

  meta::NamesClient& names_;
  const JobFsOptions options_;
  NodePeers* const peers_;  // or null
  TreeBacking backing_;
  io::Descriptor root_directory_;  // O_PATH
  JobNode* root_node_ = nullptr;
  dev_t device_number_ = 0;
  bool has_user_attributes_ = false;  // the backing file system has
  JobNodes nodes_;
  MovingNames moving_{mutex_, nodes_};
  HiddenTimes hidden_;
  std::shared_ptr<PieceChecks> piece_checks_;  // of what `writer_` writes
  LogWriter writer_;

  Mutex drain_mutex_;   // of one drain after the other
  Mutex change_mutex_;  // no name goes or moves
  Mutex mutex_;
  Requests requests_;
  FilesInHand in_hand_{mutex_, requests_};
  // Null with one node. They do not change after begin().
  OtherNodes other_nodes_{*this};
  StandInRoots stand_in_roots_;
  std::unique_ptr<KeptRoots> roots_;
  std::unique_ptr<RemotePeers> remote_;
  std::unique_ptr<SharedFiles> shared_;
  std::unique_ptr<NodeLife> life_;
  std::unique_ptr<NameTurns> turns_;
  std::unique_ptr<SharedDrain> lead_;
  std::unique_ptr<JobLocks> locks_;
  std::unique_ptr<UndrainedElsewhere> elsewhere_;
  LogGrants grants_ GUARDED_BY(mutex_);  // outlives files_
  std::string meeting_ GUARDED_BY(mutex_);
  std::atomic<uint64_t> seals_ = 0;               // of files, and unseals; it changes with the mutex held
  uint64_t drains_begun_ GUARDED_BY(mutex_) = 0;  // batches
  DropPages drop_pages_ GUARDED_BY(mutex_);
  std::atomic<bool> knows_pages_left_ = false;               // of some file
  std::unique_ptr<KnownPaths> paths_ PT_GUARDED_BY(mutex_);  // null with one node
  std::unique_ptr<NodeFiles> files_ PT_GUARDED_BY(mutex_);
  std::unique_ptr<NameIntent> intent_ PT_GUARDED_BY(change_mutex_);
  TouchedDirectory touched_ GUARDED_BY(drain_mutex_);      // by the last batch, of several nodes
  std::unique_ptr<Drain> drain_ GUARDED_BY(drain_mutex_);  // its steps that use NodeFiles need mutex_, too
  Mutex wanted_mutex_;                                     // the last that is taken
  std::vector<Wanted*> wanted_ GUARDED_BY(wanted_mutex_);  // files that somebody waits for

  LightGate light_gate_;
  std::atomic<uint64_t> light_creates_ = 0, light_opens_ = 0, light_looks_ = 0, light_open_ = 0;
  Mutex lent_mutex_;
  std::map<std::string, Lent, std::less<>> lent_ GUARDED_BY(lent_mutex_);
  std::atomic<size_t> lent_count_ = 0;

  std::set<meta::FileId> kept_nameless_ GUARDED_BY(mutex_);  // other nodes have them open
  std::set<NodeId> ready_ GUARDED_BY(mutex_);                // nodes whose server has begun
  std::set<meta::FileId> retimed_ GUARDED_BY(mutex_);        // of several nodes: this one is to drain them

  std::atomic<uint64_t> writes_ = 0, reads_ = 0;
  std::atomic<uint64_t> drained_files_ = 0, failed_drains_ = 0;
  KeptAside kept_aside_;
  Mutex failure_mutex_;
  std::string last_failure_ GUARDED_BY(failure_mutex_);
  LostAttributes lost_;
  std::atomic<bool> stopping_ = false;
  std::thread keeper_;
};

}  // namespace swale::fs
