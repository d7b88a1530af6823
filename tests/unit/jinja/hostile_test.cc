// Templates made to crash, hang or eat memory. Each must end quickly with a TemplateError (or render).
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "core/text/jinja/chat_template.h"

namespace backplane::text::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string repeated(std::string_view text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// The error that the template ends in; empty if it renders.
std::string error_of(const std::string& source, const RenderOptions& options = {}) {
  auto start = std::chrono::steady_clock::now();
  std::string error;
  try {
    ChatTemplate(source).render({{"s", "text"}, {"messages", {{{"role", "user"}}}}}, options);
  } catch (const TemplateError& e) {
    error = e.message();
  }
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 60) << source.substr(0,
                                               200);  // some 30 times what it takes, for sanitizers and busy machines
  return error;
}

TEST(JinjaHostile, Loops) {
  EXPECT_EQ(error_of("{% for a in range(99999999) %}{% for b in range(99999999) %}x{% endfor %}{% endfor %}"),
            "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  std::string list = "{% set r = range(100000)|list %}";
  EXPECT_EQ(error_of(list + "{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}"),
            "the template takes too many steps");
  RenderOptions fewer;
  fewer.limits.steps = 2'000'000;
  EXPECT_EQ(error_of(list + "{% for a in r %}{% for b in r if false %}{% endfor %}{% endfor %}", fewer),
            "the template takes too many steps");
  EXPECT_EQ(error_of("{{ range(-170141183460469231731687303715884105727, 170141183460469231731687303715884105727) }}"),
            "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
}

TEST(JinjaHostile, ManyScopes) {
  // A thousand messages, each looked at for each: slow, but honest.
  EXPECT_EQ(
      error_of(
          "{% for a in range(1000) %}{% for b in range(1000) %}{% if a == b %}x{% endif %}{% endfor %}{% endfor %}"),
      "");
  EXPECT_EQ(
      error_of(
          "{% for a in range(100000) %}{% for b in range(100) %}{% macro m() %}{% endmacro %}{% endfor %}{% endfor %}"),
      "the template uses too much memory");
}

TEST(JinjaHostile, Recursion) {
  EXPECT_EQ(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "maximum recursion depth exceeded");
  EXPECT_EQ(error_of("{% macro m(x) %}{% for i in [1] %}{% if x %}{{ [m(x), 1] | join }}{% endif %}{% endfor %}"
                     "{% endmacro %}{{ m(1) }}"),
            "maximum recursion depth exceeded");
  EXPECT_EQ(error_of("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}"), "maximum recursion depth exceeded");
  EXPECT_EQ(error_of("{% macro m() %}{{ caller() }}{% endmacro %}{% macro r() %}{% call m() %}{{ r() }}{% endcall %}"
                     "{% endmacro %}{{ r() }}"),
            "maximum recursion depth exceeded");
}

TEST(JinjaHostile, NestingOfTheSource) {
  constexpr int kMany = 20000;
  for (const char* open : {"(", "[", "{1:", "not ", "-", "+", "f(", "x[", "1 if 1 else ", "x|f(", "(1,"}) {
    EXPECT_NE(error_of("{{ " + repeated(open, kMany)), "") << open;
    EXPECT_NE(error_of("{{ " + repeated(open, kMany) + "1 }}"), "") << open;
  }
  for (const char* link : {"+1", "*1", "**1", " and 1", " or 1", ".a", "[0]", "|e", " is odd", "()", " if 1"}) {
    EXPECT_NE(error_of("{{ 1" + repeated(link, kMany) + " }}"), "") << link;
  }
  EXPECT_NE(error_of(repeated("{% if 1 %}", kMany) + repeated("{% endif %}", kMany)), "");
  EXPECT_NE(error_of(repeated("{% for a in s %}", kMany / 2)), "");
  EXPECT_NE(error_of("{% set " + repeated("(", kMany) + "a %}"), "");
  EXPECT_NE(error_of(std::string(1 << 20, 'x')), "");
  EXPECT_EQ(error_of("{{ 0" + repeated(" ~ 1", kMany) + " }}"), "");  // flat, whatever its length
  EXPECT_EQ(error_of("{{ 1" + repeated(" < 2", kMany) + " }}"), "");
  EXPECT_EQ(error_of("{% if 0 %}" + repeated("{% elif 0 %}", kMany / 2) + "{% endif %}"), "");
}

TEST(JinjaHostile, Memory) {
  const char* kMemory = "the template uses too much memory";
  std::string doubling = "{% set ns = namespace(s='ab', l=[1], t=(1,), d={}) %}{% for i in range(60) %}";
  EXPECT_EQ(error_of("{{ 'x' * 9999999999 }}"), kMemory);
  EXPECT_EQ(error_of("{{ [0] * 9999999999 }}"), kMemory);
  EXPECT_EQ(error_of("{{ 'xx' * 170141183460469231731687303715884105727 }}"), kMemory);
  EXPECT_EQ(error_of(doubling + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}"), kMemory);
  EXPECT_EQ(error_of(doubling + "{% set ns.s = ns.s + ns.s %}{% endfor %}"), kMemory);
  EXPECT_EQ(error_of(doubling + "{% set ns.l = ns.l + ns.l %}{% endfor %}"), kMemory);
  EXPECT_EQ(error_of(doubling + "{% set ns.s = ns.s | replace('', ns.s) %}{% endfor %}"), kMemory);
  EXPECT_EQ(error_of(doubling + "{% set ns.s = ns.s.join([ns.s, ns.s]) %}{% endfor %}"), kMemory);
  EXPECT_EQ(error_of(doubling + "{% set ns.s = '%s%s' % (ns.s, ns.s) %}{% endfor %}"), kMemory);
  EXPECT_EQ(error_of(doubling + "{% set ns.s = '{0}{0}'.format(ns.s) %}{% endfor %}"), kMemory);
  for (const char* filter :
       {"center(99999999999)", "indent(999999999, true)", "batch(999999999, 1)|list", "tojson(indent=999999999)"}) {
    EXPECT_EQ(error_of(std::string("{{ s|") + filter + " }}"), kMemory) << filter;
  }
  for (const char* method : {"center(99999999999)", "ljust(99999999999)", "zfill(99999999999)"}) {
    EXPECT_EQ(error_of(std::string("{{ s.") + method + " }}"), kMemory) << method;
  }
  EXPECT_EQ(error_of("{{ '\\t'.expandtabs(2147483647) }}"), kMemory);
  EXPECT_EQ(error_of("{{ '%999999999d' % 1 }}"), kMemory);
  EXPECT_EQ(error_of("{{ '{:>999999999}'.format(1) }}"), kMemory);
  EXPECT_NE(error_of("{{ [1]|slice(9999999999)|list }}"), "");
  EXPECT_NE(error_of("{{ strftime_now('%9999999d') }}"), "");
}

TEST(JinjaHostile, DeepAndCyclicValues) {
  std::string ns = "{% set ns = namespace(x=1) %}";
  EXPECT_EQ(error_of(ns + "{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}"),
            "values are nested too deeply");
  EXPECT_EQ(error_of(ns + "{% for i in range(100000) %}{% set ns.x = {1: ns.x} %}{% endfor %}"),
            "values are nested too deeply");
  EXPECT_EQ(
      error_of(ns + "{% for i in range(100000) %}{% for j in [ns.x] %}{% set ns.x = loop %}{% endfor %}{% endfor %}"),
      "values are nested too deeply");
  EXPECT_EQ(error_of(ns + "{% for i in range(100000) %}{% set ns.x = [ns.x]|map('string') %}{% endfor %}"), "");
  // Long chains and cycles of namespaces are possible; freeing them must not recurse or leak.
  EXPECT_EQ(error_of(ns + "{% for i in range(100000) %}{% set ns.x = namespace(y=ns.x) %}{% endfor %}"), "");
  EXPECT_EQ(error_of(ns + "{% set ns.x = ns %}{{ ns == ns.x }}"), "");
  EXPECT_NE(error_of(ns + "{% set ns.x = [ns] %}{{ ns }}"), "");
  EXPECT_NE(error_of(ns + "{% set ns.x = [ns] %}{{ ns|tojson }}"), "");
  EXPECT_EQ(error_of(ns + "{% for i in [1, 2] %}{{ loop.changed(loop) }}{% set ns.l = loop %}{% endfor %}"
                          "{{ ns.l.changed([ns.l]) }}"),
            "");
  // Values that share parts: exponential when walked as a tree.
  std::string shared = ns +
                       "{% set ns.y = 1 %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}"
                       "{% set ns.y = [ns.y, ns.y] %}{% endfor %}";
  EXPECT_NE(error_of(shared + "{{ ns.x == ns.y }}"), "");
  EXPECT_NE(error_of(shared + "{{ ns.x }}"), "");
  EXPECT_NE(error_of(shared + "{{ ns.x|tojson }}"), "");
  EXPECT_NE(error_of(shared + "{{ ns.x < ns.y }}"), "");
  EXPECT_NE(error_of(ns + "{% for i in range(90) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} }}"), "");
}

TEST(JinjaHostile, QuadraticText) {
  std::string text = "{% set a = 'a' * 1000000 %}{% set h = 'a' * 500000 %}{% set n = h ~ 'b' %}";
  for (const char* expression : {"n in a", "a.find(n)", "a.rfind(n)", "a.rfind('b' ~ h)", "a.rfind(h)", "a.count(n)",
                                 "a.split(n)|length", "a.rsplit(n)|length", "a.rsplit(h, 1)|length",
                                 "a|replace(n, '')|length", "a.strip(n)|length", "(' ' ~ a)|trim|length"}) {
    error_of(text + "{% for i in range(3) %}{{ " + expression + " }}{% endfor %}");
  }
  error_of("{% set a = ' a' * 200000 %}{{ a.split()|length }}{{ a.rsplit()|length }}{{ a.rsplit(' ')|length }}");
  std::string variables;
  for (int i = 0; i < 10000; ++i) variables += "{% set v" + std::to_string(i) + "=1 %}";
  EXPECT_NE(error_of(variables + "{% for i in range(100000) %}{{ v9999 }}{{ v9998 }}{% endfor %}"), "");
}

TEST(JinjaHostile, EscapesFromScopes) {
  std::string ns = "{% set ns = namespace() %}";
  EXPECT_EQ(error_of(ns + "{% for i in [1] %}{% set q = 5 %}{% macro m() %}{{ q }}{% endmacro %}{% set ns.m = m %}"
                          "{% endfor %}{{ ns.m() }}"),
            "");
  EXPECT_EQ(error_of(ns + "{% macro o() %}{% set ns.c = caller %}{% endmacro %}{% for i in [1] %}{% call o() %}{{ i }}"
                          "{% endcall %}{% endfor %}{{ ns.c() }}"),
            "");
  EXPECT_EQ(error_of(ns + "{% macro f() %}{% for i in [1] recursive %}{% set ns.l = loop %}{{ i }}{% endfor %}"
                          "{% endmacro %}{{ f() }}{{ ns.l([2, 3]) }}"),
            "");
  EXPECT_EQ(error_of(ns + "{% for i in [1, 2, 3] if i %}{% set ns.l = loop %}{% break %}{% endfor %}{{ ns.l.length }}"
                          "{{ ns.l.nextitem }}{{ ns.l.last }}"),
            "");
}

TEST(JinjaHostile, Sandbox) {
  EXPECT_EQ(error_of("{{ ''.__class__.__mro__[1].__subclasses__() }}"),
            "access to attribute '__class__' of 'str' object is unsafe.");
  for (const char* way : {"''['__class__'].x", "''|attr('__class__')|attr('x')", "'{0.__class__.x}'.format('')",
                          "namespace.__init__.x", "['']|map(attribute='__class__.x')|list", "messages.append(1)",
                          "messages[0].update({})", "messages[0].pop('role')", "messages.__class__()"}) {
    EXPECT_NE(error_of(std::string("{{ ") + way + " }}"), "") << way;
  }
  EXPECT_NE(error_of("{% include '/etc/passwd' %}"), "");
  EXPECT_NE(error_of("{% import 'os' as os %}"), "");
}

TEST(JinjaHostile, BrokenTexts) {
  EXPECT_EQ(error_of(std::string("a\0b{{ x }}", 10)), "");
  EXPECT_NE(error_of("{% for m in messages %}{{ m.content"), "");
  for (const char* bytes : {"\xff{{ '\xc3' }}", "{{ '\xe2\x82'|upper }}", "{{ '\xf0\x9f'[0] ~ '\xed\xa0\x80'|title }}",
                            "{{ '\xc3\x28\xff'|list|tojson(true) }}", "{{ ['\xfe'] }}"}) {
    EXPECT_EQ(error_of(bytes), "") << bytes;
  }
  EXPECT_NE(error_of("{{ \xff }}"), "");
  EXPECT_NE(error_of("{{ 99999999999999999999999999999999999999999999999999 }}"), "");
  EXPECT_NE(error_of("{{ 10 ** 100 }}"), "");
  EXPECT_NE(error_of("{{ (-170141183460469231731687303715884105727 - 1) // -1 }}"), "");
  EXPECT_EQ(error_of("{{ (-170141183460469231731687303715884105727 - 1) % -1 }}{{ -2 ** 127 }}"), "");
}

TEST(JinjaHostile, LimitsAreTheCallers) {
  RenderOptions options;
  options.limits.output_bytes = 10;
  EXPECT_EQ(error_of("{% for i in range(5) %}ab{% endfor %}", options), "");
  EXPECT_EQ(error_of("{% for i in range(6) %}ab{% endfor %}", options), "the rendered text is too long");
  options.limits = {};
  options.limits.steps = 100;
  EXPECT_EQ(error_of("{% for i in range(200) %}{% endfor %}", options), "the template takes too many steps");
  options.limits = {};
  options.limits.depth = 5;
  EXPECT_EQ(error_of("{{ [[[[[[1]]]]]] }}", options), "maximum recursion depth exceeded");
}

}  // namespace
}  // namespace backplane::text::jinja
