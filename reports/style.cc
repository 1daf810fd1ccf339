// SPDX-License-Identifier: Apache-2.0
// The style sheet. Text has a contrast of at least 4.5, lines and markers of at least 3.
#include "reports/style.h"

namespace attest::reports {

std::string_view StyleSheet() {
  return R"css(
:root { color-scheme: light dark;
  --page: #f6f7f8; --card: #ffffff; --text: #1b1f24; --soft: #525a64; --line: #d5d9de;
  --stripe: #f2f4f6; --link: #0b57a4; --code: #eef0f3;
  --good: #14602f; --good-back: #e2f3e7; --caution: #6b4700; --caution-back: #fdf0cc;
  --bad: #9b1c1c; --bad-back: #fce6e4; --neutral: #454d57; --neutral-back: #e8ebee;
  --s0: #0b57a4; --s1: #b8460b; --s2: #177245; --s3: #8239a3; --s4: #846a00; --s5: #0d7485;
  --s6: #b1295c; --s7: #4a525b; --ink: #073763; }
@media (prefers-color-scheme: dark) { :root {
  --page: #121518; --card: #1a1e23; --text: #e5e8eb; --soft: #a9b2bc; --line: #3a4149;
  --stripe: #20252b; --link: #85bbf7; --code: #262c33;
  --good: #86dba0; --good-back: #15301f; --caution: #f2cb71; --caution-back: #38290b;
  --bad: #ffa39b; --bad-back: #421b1b; --neutral: #c0c8d0; --neutral-back: #2b3138;
  --s0: #85bbf7; --s1: #ff9f68; --s2: #74d69f; --s3: #d5a1f2; --s4: #e4c45f; --s5: #67d1e1;
  --s6: #ff93b8; --s7: #c5cbd1; --ink: #cfe4ff; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 1rem; -webkit-text-size-adjust: 100%; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body { margin: 0; background: var(--page); color: var(--text);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: break-word; }
.wrap, main { max-width: 68rem; margin: 0 auto; padding: 0 1.25rem; }
a { color: var(--link); text-underline-offset: 0.15em; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; border-radius: 2px; }
.skip { position: absolute; left: -100vw; padding: 0.5rem 1rem; background: var(--card); }
.skip:focus { left: 0; z-index: 2; }
header { background: var(--card); border-bottom: 1px solid var(--line); padding: 1.5rem 0 0; }
h1 { font-size: 1.15rem; margin: 0; font-weight: 600; }
h2 { font-size: 1.45rem; line-height: 1.25; margin: 3rem 0 1rem; }
h3 { font-size: 1.2rem; line-height: 1.3; margin: 0; }
section > h3 { margin: 1.5rem 0 0.5rem; }
h4 { font-size: 1rem; margin: 1.75rem 0 0.5rem; }
h5 { font-size: 1rem; margin: 0; }
p { margin: 0.5rem 0; max-width: 46rem; }
li { max-width: 46rem; margin: 0.25rem 0; }
ul, ol { padding-left: 1.35rem; margin: 0.5rem 0; }
.meta, .note, figcaption small { color: var(--soft); font-size: 0.9rem; }
.meta { margin: 0.1rem 0 0; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: 0.25rem 1.5rem; padding: 0;
  margin: 1rem 0 0; }
nav li { margin: 0; }
nav a { display: inline-block; padding: 0.4rem 0; text-decoration: none; }
nav a:hover { text-decoration: underline; }
.headline { border-left: 6px solid var(--neutral); background: var(--card); padding: 1.1rem 1.25rem;
  margin: 1.5rem 0; border-radius: 4px; border-top: 1px solid var(--line);
  border-right: 1px solid var(--line); border-bottom: 1px solid var(--line); }
.headline.good { border-left-color: var(--good); } .headline.bad { border-left-color: var(--bad); }
.headline.caution { border-left-color: var(--caution); }
.headline h2 { margin: 0 0 0.35rem; font-size: 1.6rem; }
.headline.good h2 { color: var(--good); } .headline.bad h2 { color: var(--bad); }
.headline.caution h2 { color: var(--caution); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: 1.25rem; margin: 1.25rem 0; }
.title { display: flex; flex-wrap: wrap; gap: 0.4rem 0.8rem; align-items: center;
  justify-content: space-between; margin-bottom: 0.5rem; }
.badge { display: inline-block; padding: 0.1rem 0.6rem; border-radius: 1rem; font-size: 0.85rem;
  font-weight: 600; white-space: nowrap; border: 1px solid currentColor; }
.good.badge { color: var(--good); background: var(--good-back); }
.caution.badge { color: var(--caution); background: var(--caution-back); }
.bad.badge { color: var(--bad); background: var(--bad-back); }
.neutral.badge { color: var(--neutral); background: var(--neutral-back); }
.finding { border-left: 3px solid var(--bad); padding: 0.1rem 0 0.1rem 1rem; margin: 1.25rem 0; }
.over { color: var(--bad); font-weight: 700; }
.facts { margin: 0.75rem 0; }
.facts div { display: grid; grid-template-columns: 10rem 1fr; gap: 0 1rem; padding: 0.2rem 0; }
.facts dt { color: var(--soft); font-size: 0.9rem; padding-top: 0.08rem; }
.facts dd { margin: 0; min-width: 0; max-width: 46rem; }
.scroll { overflow: auto; max-height: 34rem; margin: 0.75rem 0; border: 1px solid var(--line);
  border-radius: 4px; background: var(--card); }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: 0.9rem;
  line-height: 1.4; }
caption { text-align: left; font-weight: 600; padding: 0.6rem 0.65rem; }
caption span { display: inline-block; position: sticky; left: 0.65rem; max-width: calc(100vw - 5rem); }
th, td { padding: 0.4rem 0.65rem; text-align: left; vertical-align: top; min-width: 4.25rem;
  max-width: 28rem; border-top: 1px solid var(--line); }
thead th { position: sticky; top: 0; background: var(--stripe); font-weight: 600;
  vertical-align: bottom; }
tbody th { font-weight: 400; }
.long { min-width: 15rem; }
tbody tr:nth-child(even) > * { background: var(--stripe); }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
thead .number { white-space: normal; }
td code { white-space: nowrap; }
code { font: 0.88em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  background: var(--code); border-radius: 3px; padding: 0.1em 0.3em; overflow-wrap: anywhere; }
pre { background: var(--code); border-radius: 4px; padding: 0.6rem 0.8rem; margin: 0.5rem 0;
  overflow-x: auto; }
pre code { background: none; padding: 0; user-select: all; -webkit-user-select: all;
  overflow-wrap: normal; }
details { margin: 0.4rem 0; }
summary { cursor: pointer; color: var(--link); padding: 0.3rem 0; width: fit-content; }
figure { margin: 1.25rem 0; max-width: 46rem; }
figcaption { font-weight: 600; font-size: 0.95rem; }
figcaption small { font-weight: 400; display: block; max-width: 40rem; }
.plot { display: block; width: 100%; height: auto; margin: 0.5rem 0; }
.plot text { fill: var(--text); font: 13px system-ui, -apple-system, "Segoe UI", Roboto, Arial,
  sans-serif; }
.plot .tick { fill: var(--soft); font-variant-numeric: tabular-nums; }
.plot .power { font-size: 0.75em; }
.grid { stroke: var(--line); stroke-width: 1; fill: none; }
.frame { stroke: var(--soft); stroke-width: 1.25; fill: none; }
.line { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; }
.mark { fill: currentColor; stroke: var(--card); stroke-width: 1; }
.cell { fill: var(--ink); stroke: var(--card); stroke-width: 1; }
.plot .value { font-size: 11px; font-variant-numeric: tabular-nums; }
.plot .value.dark { fill: var(--card); }
.s0 { color: var(--s0); } .s1 { color: var(--s1); } .s2 { color: var(--s2); }
.s3 { color: var(--s3); } .s4 { color: var(--s4); } .s5 { color: var(--s5); }
.s6 { color: var(--s6); } .s7 { color: var(--s7); }
.s1 .line { stroke-dasharray: 7 4; } .s2 .line { stroke-dasharray: 2 3; }
.s3 .line { stroke-dasharray: 9 3 2 3; } .s4 .line { stroke-dasharray: 12 4; }
.s5 .line { stroke-dasharray: 4 2; } .s6 .line { stroke-dasharray: 9 3 2 3 2 3; }
.s7 .line { stroke-dasharray: 1 4; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 0.2rem 1.4rem; padding: 0;
  font-size: 0.9rem; }
.legend li { display: flex; align-items: center; gap: 0.5rem; }
.swatch { flex: none; }
footer { border-top: 1px solid var(--line); margin: 3rem 0 0; padding: 1rem 0 2rem; }
@media (max-width: 40rem) {
  .wrap, main { padding: 0 0.9rem; }
  .card { padding: 0.9rem; }
  .headline h2 { font-size: 1.35rem; }
  .facts div { grid-template-columns: 1fr; padding: 0.35rem 0; }
  .plot text { font-size: 19px; }
  .plot .optional, .plot .value { display: none; }
  .plot .line { stroke-width: 3; }
  .plot .mark { stroke: currentColor; stroke-width: 3; }
  .scroll td:not(.long) { min-width: 5.5rem; }
}
@media print {
  :root { --page: #fff; }
  body { font-size: 10pt; }
  nav, .skip { display: none; }
  .scroll { overflow: visible; max-height: none; }
  thead th { position: static; }
  pre { white-space: pre-wrap; }
  .finding, figure, tr { break-inside: avoid; }
  h2, h3, h4, .title { break-after: avoid; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
)css";
}

}  // namespace attest::reports
