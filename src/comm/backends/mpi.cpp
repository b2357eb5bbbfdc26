// SPDX-License-Identifier: Apache-2.0
// Open MPI (or any MPI-3). Messages are MPI_Isend and MPI_Irecv that the engine tests; collectives
// of ranks on one node run in a shared segment, others by the default direct exchange.
#include "tessera/comm/mpi.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "group.hpp"
#include "pieces.hpp"
#include "staged_work.hpp"
#include "tessera/core/context.hpp"

namespace tessera::comm {
namespace {

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ErrorCode::kPeerFailed, fmt::format("MPI: {}: {}", what, text));
}

/// Finalises MPI when the last communicator is gone, if we initialised it.
struct MpiSession {
  bool owns = false;
  ~MpiSession() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (owns && finalized == 0) MPI_Finalize();
  }
};

/// A communicator of our own. Freed by its last user; after a failure MPI may wait in there for
/// ranks that are gone, so it is left to the end of the process.
class MpiComm {
 public:
  MpiComm(MPI_Comm comm, std::shared_ptr<MpiSession> session, std::shared_ptr<PoisonPage> poison)
      : comm_(comm), session_(std::move(session)), poison_(std::move(poison)) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  ~MpiComm() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0 && !poison_->is_poisoned()) MPI_Comm_free(&comm_);
  }
  MpiComm(const MpiComm&) = delete;
  MpiComm& operator=(const MpiComm&) = delete;

  MPI_Comm get() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
  std::shared_ptr<MpiSession> session_;  ///< finalised after the communicator
  std::shared_ptr<PoisonPage> poison_;
};

/// Memory of a file descriptor that other ranks of the node mapped too.
class Mapping {
 public:
  Mapping(int fd, std::size_t bytes)
      : bytes_(bytes), data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) {}
  ~Mapping() {
    if (is_valid()) munmap(data_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  bool is_valid() const { return data_ != MAP_FAILED; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

bool all_agree(MPI_Comm comm, bool ok) {
  int mine = ok ? 1 : 0;
  int all = 0;
  check_mpi(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm), "agreeing on shared memory");
  return all == 1;
}

/// Collective over ranks of one node: one zeroed segment that all map; null when there is none to
/// be had. The file has no name: the others open it through the maker's descriptor.
std::shared_ptr<Mapping> map_together(MPI_Comm comm, std::size_t bytes) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  long long place[2] = {getpid(), -1};
  int fd = -1;
  if (rank == 0) {
    fd = memfd_create("tessera", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
      close(fd);
      fd = -1;
    }
    place[1] = fd;
  }
  check_mpi(MPI_Bcast(place, 2, MPI_LONG_LONG, 0, comm), "sharing memory");
  if (rank != 0 && place[1] >= 0) {
    fd = open(fmt::format("/proc/{}/fd/{}", place[0], place[1]).c_str(), O_RDWR | O_CLOEXEC);
  }
  std::shared_ptr<Mapping> mapping;
  if (fd >= 0) mapping = std::make_shared<Mapping>(fd, bytes);
  const bool ok = all_agree(comm, mapping != nullptr && mapping->is_valid());
  if (fd >= 0) close(fd);  // after the agreement: everybody has it open by then
  return ok ? mapping : nullptr;
}

class MpiMessage final : public Operation {
 public:
  enum class Kind { kSend, kReceive };
  static constexpr std::size_t kPart = std::size_t{1} << 30;  ///< MPI counts are int

  MpiMessage(Engine& engine, std::string what, Kind kind, Tensor tensor, int peer, int tag,
             std::shared_ptr<MpiComm> comm)
      : Operation(engine, std::move(what)),
        kind_(kind),
        tensor_(std::move(tensor)),
        comm_(std::move(comm)) {
    auto* data = static_cast<std::byte*>(tensor_.raw());
    std::size_t left = tensor_.bytes();
    do {
      const std::size_t part = std::min(left, kPart);
      const int count = static_cast<int>(part);
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(kind == Kind::kSend
                    ? MPI_Isend(data, count, MPI_BYTE, peer, tag, comm_->get(), &request)
                    : MPI_Irecv(data, count, MPI_BYTE, peer, tag, comm_->get(), &request),
                "starting a message");
      requests_.push_back(request);
      parts_.push_back(count);
      data += part;
      left -= part;
    } while (left > 0);
  }

  bool advance() override {
    for (; next_ < requests_.size(); ++next_) {
      int done = 0;
      MPI_Status status;
      const int code = MPI_Test(&requests_[next_], &done, &status);
      int error_class = MPI_SUCCESS;
      if (code != MPI_SUCCESS) MPI_Error_class(code, &error_class);
      TESSERA_CHECK(error_class != MPI_ERR_TRUNCATE,
                    "a longer message came for a tensor of {} bytes", tensor_.bytes());
      check_mpi(code, "a message");
      if (done == 0) return false;
      if (kind_ == Kind::kSend) continue;
      int count = 0;
      MPI_Get_count(&status, MPI_BYTE, &count);
      TESSERA_CHECK(count == parts_[next_], "a message of {} bytes came for a tensor of {} bytes",
                    count, tensor_.bytes());
    }
    return true;
  }

  void release() override {
    if (next_ < requests_.size()) keep_for_ever();
    tensor_ = Tensor();
    comm_.reset();
  }

 private:
  /// After a failure MPI may still write to the memory of a message that it cannot give up at once;
  /// the memory is kept to the end of the process, which is near.
  void keep_for_ever() {
    bool is_over = true;
    for (MPI_Request& request : requests_) {
      if (request == MPI_REQUEST_NULL) continue;
      if (kind_ == Kind::kReceive) MPI_Cancel(&request);
      int done = 0;
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      is_over = is_over && done != 0;
    }
    if (!is_over) static_cast<void>(new Tensor(tensor_));
  }

  Kind kind_;
  Tensor tensor_;
  std::shared_ptr<MpiComm> comm_;
  std::vector<MPI_Request> requests_;
  std::vector<int> parts_;
  std::size_t next_ = 0;
};

/// A default collective, advanced by the engine.
class MessageCollective final : public Operation {
 public:
  MessageCollective(Engine& engine, std::string what, std::shared_ptr<StagedWork> work)
      : Operation(engine, std::move(what)), work_(std::move(work)) {}

  bool advance() override { return work_->done(); }
  void release() override { work_.reset(); }
  std::string waiting_for() const override { return work_ == nullptr ? "" : work_->waiting_for(); }

 private:
  std::shared_ptr<StagedWork> work_;
};

/// What the communicators of one world share.
struct World {
  std::shared_ptr<MpiSession> session;
  SharedMemory shared;
  std::shared_ptr<Engine> engine;
};

bool is_one_node(const MpiComm& comm) {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(
      MPI_Comm_split_type(comm.get(), MPI_COMM_TYPE_SHARED, comm.rank(), MPI_INFO_NULL, &node),
      "looking for the ranks of this node");
  int size = 0;
  MPI_Comm_size(node, &size);
  MPI_Comm_free(&node);
  return all_agree(comm.get(), size == comm.size());
}

/// Tick counters, then two slots per rank.
SharedSegment segment_of(const std::shared_ptr<Mapping>& mapping, int size) {
  SharedSegment segment;
  segment.owner = mapping;
  segment.ticks = reinterpret_cast<TickCounter*>(mapping->data());
  std::byte* slots = mapping->data() + sizeof(TickCounter) * static_cast<std::size_t>(size);
  for (int r = 0; r < size; ++r) segment.slots.push_back(slots + 2 * kSlotBytes * r);
  return segment;
}

std::size_t segment_bytes(int size) {
  return (sizeof(TickCounter) + static_cast<std::size_t>(2 * kSlotBytes)) *
         static_cast<std::size_t>(size);
}

std::shared_ptr<Communicator> make_communicator(const World& world, MPI_Comm comm);

/// Messages and splits, alike for both kinds of communicators.
class Messenger {
 public:
  Messenger(World world, std::shared_ptr<MpiComm> comm)
      : world_(std::move(world)), comm_(std::move(comm)) {}

  const MpiComm& comm() const { return *comm_; }
  Engine& engine() const { return *world_.engine; }

  Work start(MpiMessage::Kind kind, std::string what, const Tensor& tensor, int peer, int tag,
             std::chrono::milliseconds timeout) const {
    const char* name = kind == MpiMessage::Kind::kSend ? "isend" : "irecv";
    TESSERA_CHECK(peer >= 0 && peer < comm_->size(), "{}: no rank {} among {}", name, peer,
                  comm_->size());
    require_contiguous(tensor, name);
    engine().check();
    auto message = std::make_shared<MpiMessage>(
        engine(), fmt::format("{}, with rank {}, tag {}", what, peer, tag), kind, tensor, peer, tag,
        comm_);
    engine().start_unordered(message);
    return Work(std::move(message), timeout);
  }

  std::shared_ptr<Communicator> split(Communicator& self, int color, int key) const {
    // With a deadline: afterwards everybody is here, and MPI_Comm_split returns.
    self.barrier().wait();
    MPI_Comm part = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(comm_->get(), color < 0 ? MPI_UNDEFINED : color, key, &part), "split");
    if (part == MPI_COMM_NULL) return nullptr;
    auto made = make_communicator(world_, part);
    made->set_timeout(self.timeout());
    return made;
  }

  bool poison(std::string_view reason) const {
    engine().poison()->poison(reason);
    return engine().poison()->claim_report();
  }

 private:
  World world_;
  std::shared_ptr<MpiComm> comm_;
};

/// Ranks of one node.
class NodeCommunicator final : public GroupCommunicator {
 public:
  NodeCommunicator(const World& world, std::shared_ptr<MpiComm> comm, SharedSegment segment)
      : GroupCommunicator(comm->rank(), comm->size(), world.engine, std::move(segment)),
        messenger_(world, std::move(comm)) {}

  std::string_view name() const override { return "mpi"; }
  Work isend(const Tensor& tensor, int peer, int tag) override {
    return messenger_.start(MpiMessage::Kind::kSend, describe("isend"), tensor, peer, tag,
                            timeout_);
  }
  Work irecv(const Tensor& tensor, int peer, int tag) override {
    return messenger_.start(MpiMessage::Kind::kReceive, describe("irecv"), tensor, peer, tag,
                            timeout_);
  }
  std::shared_ptr<Communicator> split(int color, int key) override {
    return messenger_.split(*this, color, key);
  }
  void end_job(int code) override { MPI_Abort(messenger_.comm().get(), code); }

 protected:
  SharedBuffer make_buffer(std::size_t bytes) override {
    const std::size_t stride = (bytes + 4095) / 4096 * 4096;
    const auto mapping =
        map_together(messenger_.comm().get(), stride * static_cast<std::size_t>(size_));
    SharedBuffer buffer{mapping, {}, bytes};
    for (int r = 0; r < size_ && mapping != nullptr; ++r) {
      buffer.parts.push_back(mapping->data() + stride * static_cast<std::size_t>(r));
    }
    return buffer;
  }

 private:
  Messenger messenger_;
};

/// Ranks on several nodes, or that avoid shared memory: default collectives over messages.
class MessageCommunicator final : public Communicator {
 public:
  MessageCommunicator(const World& world, std::shared_ptr<MpiComm> comm)
      : Communicator(comm->rank(), comm->size()),
        messenger_(world, std::move(comm)),
        queue_(messenger_.engine().add_queue()) {}
  ~MessageCommunicator() override { messenger_.engine().remove_queue(queue_); }

  std::string_view name() const override { return "mpi"; }
  Work isend(const Tensor& tensor, int peer, int tag) override {
    return messenger_.start(MpiMessage::Kind::kSend, describe("isend"), tensor, peer, tag,
                            timeout_);
  }
  Work irecv(const Tensor& tensor, int peer, int tag) override {
    return messenger_.start(MpiMessage::Kind::kReceive, describe("irecv"), tensor, peer, tag,
                            timeout_);
  }
  std::shared_ptr<Communicator> split(int color, int key) override {
    return messenger_.split(*this, color, key);
  }
  void set_priority(int priority) override { messenger_.engine().set_priority(queue_, priority); }
  void end_job(int code) override { MPI_Abort(messenger_.comm().get(), code); }
  bool poison(std::string_view reason) override { return messenger_.poison(reason); }

 protected:
  Work start_collective(std::shared_ptr<StagedWork> work, std::string_view operation) override {
    auto collective = std::make_shared<MessageCollective>(messenger_.engine(), describe(operation),
                                                          std::move(work));
    messenger_.engine().start(queue_, collective);
    return Work(std::move(collective), timeout_);
  }

 private:
  Messenger messenger_;
  Engine::Queue queue_;
};

std::shared_ptr<Communicator> make_communicator(const World& world, MPI_Comm made) {
  auto comm = std::make_shared<MpiComm>(made, world.session, world.engine->poison());
  if (world.shared == SharedMemory::kUse && is_one_node(*comm)) {
    if (const auto mapping = map_together(made, segment_bytes(comm->size()))) {
      SharedSegment segment = segment_of(mapping, comm->size());
      return std::make_shared<NodeCommunicator>(world, std::move(comm), std::move(segment));
    }
  }
  return std::make_shared<MessageCommunicator>(world, std::move(comm));
}

/// The poison page of a world: shared where the ranks share a node, so that one rank's failure
/// reaches the others' waits.
std::shared_ptr<PoisonPage> make_poison(MPI_Comm comm) {
  MPI_Comm node = MPI_COMM_NULL;
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node),
            "looking for the ranks of this node");
  const auto mapping = map_together(node, sizeof(PoisonPage));
  MPI_Comm_free(&node);
  if (mapping == nullptr) return std::make_shared<PoisonPage>();
  // The segment is zeroed, which is the state of a sound page; no rank constructs it anew.
  return {mapping, reinterpret_cast<PoisonPage*>(mapping->data())};
}

void require_threads() {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level >= MPI_THREAD_MULTIPLE) return;
  throw Error(ErrorCode::kUnsupported,
              "MPI was initialised below MPI_THREAD_MULTIPLE, and a communication thread needs it; "
              "initialise with MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided)");
}

std::shared_ptr<Communicator> make_world_over(MPI_Comm comm, std::shared_ptr<MpiSession> session,
                                              SharedMemory shared) {
  MPI_Comm own = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(comm, &own), "duplicating the communicator");
  MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  int rank = 0;
  MPI_Comm_rank(own, &rank);
  World world{std::move(session), shared, nullptr};
  world.engine = std::make_shared<Engine>(make_poison(own), rank);
  return make_communicator(world, own);
}

}  // namespace

std::shared_ptr<Communicator> from_mpi(MPI_Comm communicator, SharedMemory shared) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  TESSERA_CHECK(initialized != 0,
                "from_mpi: MPI is not initialised; call MPI_Init_thread(&argc, &argv, "
                "MPI_THREAD_MULTIPLE, &provided) first");
  require_threads();
  return make_world_over(communicator, std::make_shared<MpiSession>(), shared);
}

namespace backends {

std::shared_ptr<Communicator> make_mpi() {
  auto session = std::make_shared<MpiSession>();
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    int provided = MPI_THREAD_SINGLE;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "initialising");
    session->owns = true;
  }
  require_threads();
  return make_world_over(MPI_COMM_WORLD, std::move(session), SharedMemory::kUse);
}

}  // namespace backends

}  // namespace tessera::comm
