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
             MPI_Comm comm)
      : Operation(engine, std::move(what)), kind_(kind), tensor_(std::move(tensor)) {
    auto* data = static_cast<std::byte*>(tensor_.raw());
    std::size_t left = tensor_.bytes();
    do {
      const std::size_t part = std::min(left, kPart);
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(kind == Kind::kSend
                    ? MPI_Isend(data, static_cast<int>(part), MPI_BYTE, peer, tag, comm, &request)
                    : MPI_Irecv(data, static_cast<int>(part), MPI_BYTE, peer, tag, comm, &request),
                "starting a message");
      requests_.push_back(request);
      parts_.push_back(static_cast<int>(part));
      data += part;
      left -= part;
    } while (left > 0);
  }

  bool advance() override {
    for (; next_ < requests_.size(); ++next_) {
      int done = 0;
      MPI_Status status;
      check_mpi(MPI_Test(&requests_[next_], &done, &status), "a message");
      if (done == 0) return false;
      if (kind_ == Kind::kSend) continue;
      int count = 0;
      MPI_Get_count(&status, MPI_BYTE, &count);
      TESSERA_CHECK(count == parts_[next_], "a message of {} bytes came for a tensor of {} bytes",
                    count, tensor_.bytes());
    }
    return true;
  }

  void release() override { tensor_ = Tensor(); }

 private:
  Kind kind_;
  Tensor tensor_;
  std::vector<MPI_Request> requests_;
  std::vector<int> parts_;
  std::size_t next_ = 0;
};

/// What the communicators of one world share.
struct World {
  std::shared_ptr<MpiSession> session;
  SharedMemory shared;
  std::shared_ptr<Engine> engine;
};

struct Members {
  MPI_Comm comm;
  int rank;
  int size;
};

Members members_of(MPI_Comm comm) {
  Members members{comm, 0, 1};
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm, &members.rank);
  MPI_Comm_size(comm, &members.size);
  return members;
}

bool is_one_node(const Members& members) {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(
      MPI_Comm_split_type(members.comm, MPI_COMM_TYPE_SHARED, members.rank, MPI_INFO_NULL, &node),
      "looking for the ranks of this node");
  int size = 0;
  MPI_Comm_size(node, &size);
  MPI_Comm_free(&node);
  return all_agree(members.comm, size == members.size);
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

Work start_message(Engine& engine, const Members& members, MpiMessage::Kind kind,
                   const Tensor& tensor, int peer, int tag, std::chrono::milliseconds timeout) {
  const char* name = kind == MpiMessage::Kind::kSend ? "isend" : "irecv";
  TESSERA_CHECK(peer >= 0 && peer < members.size, "{}: no rank {} among {}", name, peer,
                members.size);
  TESSERA_CHECK(tensor.is_contiguous(), "{}: tensors must be contiguous", name);
  engine.check();
  auto message = std::make_shared<MpiMessage>(
      engine,
      fmt::format("{} on the mpi communicator (rank {} of {}) with rank {}, tag {}", name,
                  members.rank, members.size, peer, tag),
      kind, tensor, peer, tag, members.comm);
  engine.start_unordered(message);
  return Work(std::move(message), timeout);
}

std::shared_ptr<Communicator> split_mpi(Communicator& self, const World& world,
                                        const Members& members, int color, int key) {
  self.barrier()
      .wait();  // with a deadline: afterwards everybody is here and MPI_Comm_split returns
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(members.comm, color < 0 ? MPI_UNDEFINED : color, key, &part), "split");
  if (part == MPI_COMM_NULL) return nullptr;
  auto made = make_communicator(world, part);
  made->set_timeout(self.timeout());
  return made;
}

/// Ranks of one node.
class NodeCommunicator final : public GroupCommunicator {
 public:
  NodeCommunicator(World world, const Members& members, SharedSegment segment)
      : GroupCommunicator(members.rank, members.size, world.engine, std::move(segment)),
        world_(std::move(world)),
        members_(members) {}

  std::string_view name() const override { return "mpi"; }
  Work isend(const Tensor& tensor, int peer, int tag) override {
    return start_message(engine(), members_, MpiMessage::Kind::kSend, tensor, peer, tag, timeout_);
  }
  Work irecv(const Tensor& tensor, int peer, int tag) override {
    return start_message(engine(), members_, MpiMessage::Kind::kReceive, tensor, peer, tag,
                         timeout_);
  }
  std::shared_ptr<Communicator> split(int color, int key) override {
    return split_mpi(*this, world_, members_, color, key);
  }
  void end_job(int code) override { MPI_Abort(members_.comm, code); }

 protected:
  SharedBuffer make_buffer(std::size_t bytes) override {
    const std::size_t stride = (bytes + 4095) / 4096 * 4096;
    const auto mapping = map_together(members_.comm, stride * static_cast<std::size_t>(size_));
    SharedBuffer buffer{mapping, {}, bytes};
    for (int r = 0; r < size_ && mapping != nullptr; ++r) {
      buffer.parts.push_back(mapping->data() + stride * static_cast<std::size_t>(r));
    }
    return buffer;
  }

 private:
  World world_;
  Members members_;
};

/// Ranks on several nodes, or that avoid shared memory: default collectives over messages.
class MessageCommunicator final : public Communicator {
 public:
  MessageCommunicator(World world, const Members& members)
      : Communicator(members.rank, members.size), world_(std::move(world)), members_(members) {}

  std::string_view name() const override { return "mpi"; }
  Work isend(const Tensor& tensor, int peer, int tag) override {
    return start_message(*world_.engine, members_, MpiMessage::Kind::kSend, tensor, peer, tag,
                         timeout_);
  }
  Work irecv(const Tensor& tensor, int peer, int tag) override {
    return start_message(*world_.engine, members_, MpiMessage::Kind::kReceive, tensor, peer, tag,
                         timeout_);
  }
  std::shared_ptr<Communicator> split(int color, int key) override {
    return split_mpi(*this, world_, members_, color, key);
  }
  void end_job(int code) override { MPI_Abort(members_.comm, code); }
  bool poison(std::string_view reason) override {
    world_.engine->poison()->poison(reason);
    return world_.engine->poison()->claim_report();
  }

 private:
  World world_;
  Members members_;
};

std::shared_ptr<Communicator> make_communicator(const World& world, MPI_Comm comm) {
  const Members members = members_of(comm);
  if (world.shared == SharedMemory::kUse && is_one_node(members)) {
    if (const auto mapping = map_together(comm, segment_bytes(members.size))) {
      return std::make_shared<NodeCommunicator>(world, members, segment_of(mapping, members.size));
    }
  }
  return std::make_shared<MessageCommunicator>(world, members);
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
