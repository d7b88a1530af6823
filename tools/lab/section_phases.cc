#include <fmt/format.h>

#include "tools/lab/sections.h"

namespace backplane::lab {
namespace {

LineChart against_tokens(const Json& data, const char* key, std::string title, std::string y_label, TextOf y_text) {
  LineChart chart{.title = std::move(title),
                  .x_label = "tokens that the step computes",
                  .y_label = std::move(y_label),
                  .x_text = plain_text,
                  .y_text = y_text,
                  .log_x = true};
  Series prefill{.name = "prefill"},
      decode{.name = "decode, after the longest prompt", .color = Color::kSecond, .mark = Mark::kDots};
  for (const Json& row : data["prefill"]) prefill.points.emplace_back(value_of(row["tokens"]), value_of(row[key]));
  decode.points.emplace_back(1, value_of(data["decode"][key]));
  chart.series = {std::move(prefill), std::move(decode)};
  return chart;
}

std::string intensity_text(double flops_per_byte) { return plain_text(flops_per_byte); }

Table table(const Json& longest, const Json& decode) {
  const auto row = [&](const char* name, const char* key, TextOf text) {
    return std::vector<std::string>{name, text(value_of(longest[key])), text(value_of(decode[key]))};
  };
  return {{"", fmt::format("prefill of {}", plain_text(value_of(longest["tokens"]))), "a decode step"},
          row("time", "seconds", seconds_text),
          row("time per token", "seconds_per_token", seconds_text),
          row("arithmetic", "flops", flops_text),
          row("arithmetic per token", "flops_per_token", flops_text),
          row("memory traffic", "bytes", bytes_text),
          row("memory traffic per token", "bytes_per_token", bytes_text),
          row("FLOP per byte", "intensity", intensity_text),
          row("arithmetic per second", "flops_per_s", flop_rate_text),
          row("memory traffic per second", "bytes_per_s", byte_rate_text)};
}

}  // namespace

void describe_phases(const Json& data, Section& section) {
  const Json &longest = data["prefill"].back(), &decode = data["decode"];
  const double per_token = value_of(longest["seconds_per_token"]), step = value_of(decode["seconds"]);
  const std::string prompt = count_text(value_of(longest["tokens"]), "token", "tokens");
  section.headline =
      fmt::format("A token of the reply took {} as a token of the prompt.", times_as(step, per_token, "long"));
  section.method = {
      fmt::format(
          "Prompts of 1, 2, 4 and so on up to {} were read into an empty cache, each {}; the shortest time to the "
          "first token counts. After the longest one {} more tokens were generated, one in each step, of which the "
          "fastest counts: whatever else the machine does makes a step slower, never faster.",
          prompt, count_text(value_of(data["repeats"]), "time", "times"), plain_text(value_of(decode["steps"]))),
      "Arithmetic and memory traffic are counted, not measured. Arithmetic, with 2 FLOP (floating-point operations) "
      "for "
      "a multiplication and an addition: for each token 2 × the elements of all matrices of the layers; for the one "
      "row "
      "of logits 2 × vocabulary × hidden size; for attention 2 × heads × (key size + value size) for each layer and "
      "each token that is looked back at. Memory traffic is the least that is possible: in each step every matrix "
      "once, "
      "the keys and values that are read and written, the embedding of each token, the logits. Norms and activations "
      "are small beside these and left out."};
  section.plots = {
      {"Time for one token of a prompt, by how many tokens the step computes together; the dot is a decode "
       "step.",
       against_tokens(data, "seconds_per_token", "time per token against tokens in the step", "time per token",
                      seconds_text)},
      {"Arithmetic for each byte that has to be fetched or written.",
       against_tokens(data, "intensity", "FLOP per byte against tokens in the step", "FLOP per byte", intensity_text)}};
  section.table = table(longest, decode);
  section.findings = {
      fmt::format("The first token after a prompt of {} came after {}, which is {} for each token of the prompt.",
                  prompt, seconds_text(value_of(longest["seconds"])), seconds_text(per_token)),
      fmt::format("Each further token took {}. A token of the reply took {} as a token of the prompt.",
                  seconds_text(step), times_as(step, per_token, "long")),
      fmt::format(
          "For one token the arithmetic of both is of the same kind: {} in the prompt, {} in the reply. The memory "
          "traffic is what differs, {} against {}: the prompt shares one reading of the matrices among {}, a "
          "decode step has one token to spread it over.",
          flops_text(value_of(longest["flops_per_token"])), flops_text(value_of(decode["flops_per_token"])),
          bytes_text(value_of(longest["bytes_per_token"])), bytes_text(value_of(decode["bytes_per_token"])), prompt),
      fmt::format("So the prompt does {} FLOP for each byte, a decode step {}. Processors can do many FLOP in the time "
                  "that it takes to fetch a byte; with few FLOP per byte they wait for memory.",
                  plain_text(value_of(longest["intensity"])), plain_text(value_of(decode["intensity"])))};
  section.caveats = {
      "On a device whose arithmetic is slow, memory may not be what it waits for, not even in decode. The rates in the "
      "table "
      "beside what the device can do at most tell which.",
      "Matrices that are stored in few bits have to be unpacked, in each step once; where that takes long, it is "
      "shared by "
      "the tokens of a prompt as the reading is."};
}

}  // namespace backplane::lab
