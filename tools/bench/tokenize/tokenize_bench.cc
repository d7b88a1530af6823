// How fast a vocabulary encodes and decodes a text on one core: bench_tokenize TOKENIZER TEXT [RUNS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/formats/tokenizer_bundle.h"

namespace {

using backplane::text::TokenId;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Timing {
  double median, best;
};

Timing measure(int runs, const std::function<void()>& work) {
  work();  // pages, caches
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) times.push_back(seconds_of(work));
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front()};
}

void print_row(const char* what, const Timing& timing, std::size_t bytes, std::size_t tokens) {
  std::printf("%-8s %10.1f %10.1f %14.2f\n", what, static_cast<double>(bytes) / timing.median / 1e6,
              static_cast<double>(bytes) / timing.best / 1e6, static_cast<double>(tokens) / timing.median / 1e6);
}

int run(const char* tokenizer_path, const char* text_path, int runs) {
  backplane::formats::TokenizerBundle bundle;
  const double load = seconds_of([&] { bundle = backplane::formats::load_tokenizer(tokenizer_path); });
  const backplane::MappedFile file(text_path);
  const std::string text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::vector<TokenId> ids;
  std::string back;
  const Timing encode = measure(runs, [&] { ids = bundle.tokenizer->encode(text); });
  const Timing decode = measure(runs, [&] { back = bundle.tokenizer->decode(ids); });
  std::printf("%s: %zu tokens, loaded in %.1f ms\n", tokenizer_path, bundle.tokenizer->vocab_size(), load * 1e3);
  std::printf("%s: %zu bytes, %zu tokens, %s; one core, %d runs\n", text_path, text.size(), ids.size(),
              back == text ? "decoded to the same bytes" : "decoded to other bytes", runs);
  std::printf("%-8s %10s %10s %14s\n", "", "MB/s", "best MB/s", "M tokens/s");
  print_row("encode", encode, text.size(), ids.size());
  print_row("decode", decode, text.size(), ids.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: bench_tokenize TOKENIZER TEXT [RUNS]\n");
    return static_cast<int>(backplane::ErrorCode::kUsage);
  }
  try {
    return run(argv[1], argv[2], argc == 4 ? std::max(1, std::atoi(argv[3])) : 21);
  } catch (const backplane::Error& error) {
    std::fprintf(stderr, "bench_tokenize: %s\n", error.what());
    return error.exit_status();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_tokenize: %s\n", error.what());
    return 1;
  }
}
