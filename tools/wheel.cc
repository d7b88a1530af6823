#include "tools/wheel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>
#include <unzip.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <system_error>
#include <vector>

#include "core/base/error.h"

namespace backplane::tools {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 18;
constexpr std::string_view kRetry = "download it again";

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) fail();
  }
  void update(std::span<const char> bytes) {
    if (EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) != 1) fail();
  }
  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    if (EVP_DigestFinal_ex(context_.get(), digest.data(), &size) != 1) fail();
    std::string text;
    for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  [[noreturn]] static void fail() { throw Error(ErrorCode::kInternal, "the hash library failed", "SHA-256"); }
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

// A new file that disappears again unless it is kept.
class NewFile {
 public:
  explicit NewFile(std::filesystem::path path)
      : path_(std::move(path)),
        descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644)) {
    if (descriptor_ < 0) fail("create");
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() {
    ::close(descriptor_);
    if (!kept_) ::unlink(path_.c_str());
  }
  void write(std::span<const char> bytes) {
    while (!bytes.empty()) {
      const ssize_t wrote = ::write(descriptor_, bytes.data(), bytes.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) fail("write");
      bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    }
  }
  void keep() {
    if (::fsync(descriptor_) != 0) fail("write");
    kept_ = true;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    const int error = errno;
    const bool full = error == ENOSPC || error == EDQUOT;
    throw Error(full ? ErrorCode::kCapacity : ErrorCode::kBadFile,
                full ? std::string("the disk is full") : fmt::format("can't {}: {}", what, std::strerror(error)),
                path_.string(), full ? "free some space, or set XDG_CACHE_HOME to another disk" : "");
  }
  std::filesystem::path path_;
  int descriptor_;
  bool kept_ = false;
};

// The member, found and opened for reading.
class Member {
 public:
  Member(const std::filesystem::path& archive, const std::string& name)
      : archive_(archive), zip_(unzOpen64(archive.c_str()), unzClose) {
    if (!zip_) refuse("not a zip archive, or cut short");
    if (unzLocateFile(zip_.get(), name.c_str(), 1) != UNZ_OK) refuse("the archive holds no " + name);
    unz_file_info64 info{};
    if (unzGetCurrentFileInfo64(zip_.get(), &info, nullptr, 0, nullptr, 0, nullptr, 0) != UNZ_OK) refuse("broken");
    bytes_ = info.uncompressed_size;
    if (unzOpenCurrentFile(zip_.get()) != UNZ_OK) refuse("the archive's " + name + " can't be read");
  }
  std::uint64_t bytes() const { return bytes_; }
  // 0 at the end.
  std::size_t read(std::span<char> out) {
    const int got = unzReadCurrentFile(zip_.get(), out.data(), static_cast<unsigned>(out.size()));
    if (got < 0) refuse("the archive is damaged");
    return static_cast<std::size_t>(got);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::kBadFile, what, archive_.string(), kRetry);
  }
  std::filesystem::path archive_;
  std::unique_ptr<void, decltype(&unzClose)> zip_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

void extract_checked(const std::filesystem::path& archive, const ExpectedFile& wanted,
                     const std::filesystem::path& target, const ByteProgress& progress) {
  Member member(archive, wanted.member);
  const auto wrong = [&](const std::string& what) {
    throw Error(ErrorCode::kBadFile, wanted.member + " is not the file that is wanted: " + what, archive.string(),
                kRetry);
  };
  if (member.bytes() != wanted.bytes) wrong(fmt::format("{} bytes, not {}", member.bytes(), wanted.bytes));
  NewFile file(target);
  Sha256 hash;
  std::vector<char> chunk(kChunk);
  std::uint64_t done = 0;
  while (const std::size_t got = member.read(chunk)) {
    done += got;
    if (done > wanted.bytes) wrong("longer than the archive says");
    const std::span<const char> bytes(chunk.data(), got);
    hash.update(bytes);
    file.write(bytes);
    if (progress) progress(done, wanted.bytes);
  }
  if (done != wanted.bytes) wrong("shorter than the archive says");
  if (const std::string got = hash.hex(); got != wanted.sha256) wrong("its SHA-256 is " + got);
  file.keep();
}

std::string sha256_of_file(const std::filesystem::path& path, const ByteProgress& progress) {
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Closer> file(std::fopen(path.c_str(), "rbe"));
  if (!file) throw Error(ErrorCode::kBadFile, std::string("can't read: ") + std::strerror(errno), path.string());
  std::error_code ignored;
  const std::uint64_t total = std::filesystem::file_size(path, ignored);
  Sha256 hash;
  std::vector<char> chunk(kChunk);
  std::uint64_t done = 0;
  while (const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), file.get())) {
    hash.update({chunk.data(), got});
    done += got;
    if (progress) progress(done, total);
  }
  if (std::ferror(file.get())) throw Error(ErrorCode::kBadFile, "can't read it to its end", path.string());
  return hash.hex();
}

}  // namespace backplane::tools
