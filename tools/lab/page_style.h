// The style sheet of the lab's page.
#pragma once

namespace backplane::lab {

// Contains no < and no &, so that it may stand in XML. The narrow plots take over where the wide ones have no room.
inline constexpr const char* kPageStyle = R"(
:root {
  color-scheme: light dark;
  --back: #fbfbf9; --card: #ffffff; --ink: #1c1c21; --soft: #585865; --line: #e2e2dd; --base: #8b8b96;
  --c0: #2358c9; --c1: #c24e06; --c2: #0b7566; --c3: #82828f; --note: #fff6df;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #141518; --card: #1c1d21; --ink: #e9e9ec; --soft: #a9aab4; --line: #313339; --base: #74767f;
    --c0: #86acff; --c1: #ff9f5e; --c2: #5fd3bd; --c3: #8a8d99; --note: #352d18;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; overflow-wrap: break-word; }
main { max-width: 48.5rem; margin: 0 auto; padding: 2.5rem 1.5rem 5rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 .6rem; }
h3 { font-size: 1rem; margin: 1.8rem 0 .4rem; }
h4 { font-size: .85rem; color: var(--soft); margin: 1.2rem 0 .3rem; }
p { margin: 0 0 .8rem; }
a { color: var(--c0); text-underline-offset: 2px; }
code { font: .9em ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
.kicker { color: var(--soft); font-size: .85rem; letter-spacing: .06em; text-transform: uppercase; margin-bottom: .3rem; }
nav, .terms { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1.1rem 1.4rem; margin: 1.5rem 0; }
nav h2, summary { font-size: 1rem; font-weight: 600; }
nav ol { margin: .5rem 0 0; padding-left: 1.4rem; }
nav li { margin: .55rem 0; }
summary { cursor: pointer; }
dl { display: grid; grid-template-columns: 6.5rem 1fr; gap: .45rem 1rem; margin: .9rem 0 0; }
dt { font-weight: 600; }
dd { margin: 0; color: var(--soft); }
section { border-top: 1px solid var(--line); margin-top: 3.2rem; padding-top: 2rem; }
.number { color: var(--c0); margin-right: .3rem; }
.question { font-size: 1.08rem; color: var(--soft); }
.warning, .skipped { background: var(--note); border-radius: 8px; padding: .8rem 1.1rem; }
ul { margin: 0 0 .8rem; padding-left: 1.2rem; }
li { margin: .35rem 0; }
.caveats { color: var(--soft); }
figure { margin: 2rem 0; }
figcaption { font-size: .92rem; color: var(--soft); margin-bottom: .6rem; }
.legend { list-style: none; padding: 0; margin: 0 0 .4rem; font-size: .85rem; display: flex; flex-wrap: wrap; gap: .2rem 1.3rem; }
.legend li { margin: 0; }
.legend svg { display: inline-block; vertical-align: -1px; margin-right: .2rem; }
figure div svg { display: block; width: 100%; height: auto; }
.narrow { display: none; max-width: 440px; }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: var(--soft); }
svg text.note { fill: var(--ink); }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .base { stroke: var(--base); stroke-width: 1; }
svg .cell { stroke: var(--back); stroke-width: 1.5; }
svg path { fill: none; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
svg path.guide, svg path.steps { stroke-width: 1.8; stroke-linejoin: miter; stroke-linecap: butt; }
svg path.line.c1 { stroke-dasharray: 7 4; }
svg path.c0 { stroke: var(--c0); } svg path.c1 { stroke: var(--c1); } svg path.c2 { stroke: var(--c2); } svg path.c3 { stroke: var(--c3); }
svg path.area { stroke: none; fill-opacity: .22; }
svg .area.c0 { fill: var(--c0); } svg .area.c1 { fill: var(--c1); } svg .area.c2 { fill: var(--c2); } svg .area.c3 { fill: var(--c3); }
svg .dot { stroke: var(--back); stroke-width: 1; }
svg rect.c0, svg .dot.c0 { fill: var(--c0); } svg rect.c1, svg .dot.c1 { fill: var(--c1); }
svg rect.c2, svg .dot.c2 { fill: var(--c2); } svg rect.c3, svg .dot.c3 { fill: var(--c3); }
.scroll { overflow-x: auto; margin: 1.1rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem 1.5rem .3rem 0; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th { font-weight: 600; }
td { white-space: nowrap; }
td:last-child, th:last-child { padding-right: 0; }
tr th:first-child { text-align: left; font-weight: 400; color: var(--soft); }
.data { font-size: .8rem; }
.data td { max-width: 26rem; white-space: normal; }
details { margin-top: 1.2rem; }
@media (max-width: 780px) {
  main { padding: 1.5rem 1rem 3rem; }
  h1 { font-size: 1.5rem; }
  .wide { display: none; }
  .narrow { display: block; }
  nav, .terms { padding: .9rem 1rem; }
  dl { display: block; }
  dd { margin-bottom: .6rem; }
  table { font-size: .84rem; }
  th, td { padding-right: .8rem; }
}
)";

}  // namespace backplane::lab
